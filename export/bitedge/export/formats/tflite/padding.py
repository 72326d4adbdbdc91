"""How a window is padded so that Larq Compute Engine's converter gets it right.

TFLite knows two paddings, VALID and SAME, and SAME puts the odd pixel at the bottom and right. The converter takes an
explicit padding for SAME when only its size fits, so that PyTorch's symmetric padding of an even map under stride 2
comes out shifted by one pixel. So paddings are cut to what windows really touch before they are written; then no
padding that is not truly SAME looks like it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from bitedge.export.ir import ops
from bitedge.export.ir.graph import Shape


@dataclass(frozen=True)
class Axis:
    """One axis of a window on a map of `size` pixels."""

    size: int
    kernel: int
    stride: int
    dilation: int
    before: int
    outputs: int

    @property
    def span(self) -> int:
        """Pixels from the first to the last tap."""
        return self.dilation * (self.kernel - 1) + 1

    @property
    def after(self) -> int:
        """Pixels beyond the end that a window touches."""
        return max((self.outputs - 1) * self.stride + self.span - self.size - self.before, 0)

    def same(self, size: int) -> tuple[int, int]:
        """Give the padding of SAME on a map of this size."""
        total = max((-(-size // self.stride) - 1) * self.stride + self.span - size, 0)
        return total // 2, total - total // 2

    @property
    def is_same(self) -> bool:
        """Tell whether the padding is exactly SAME's."""
        return self.outputs == -(-self.size // self.stride) and self.same(self.size) == (self.before, self.after)

    def extension(self) -> int | None:
        """Give the number of pixels to append so that a binary convolution pads with zeros as wanted, or None.

        The appended pixels are not zeros, so no window that is kept may touch them. On a map that is smaller than its
        window Larq Compute Engine 0.16 takes zero padding off twice, so such a map is none of its business.
        """
        if self.size < self.span:
            return None
        if self.is_same:
            return 0
        if self.after == 0:
            for extra in range(1, self.stride + 1):
                if self.same(self.size + extra)[0] == self.before:
                    return extra
        return None


def axes(shape: Shape, window: ops.Window) -> tuple[Axis, Axis]:
    """Give the two axes of a window on a map."""
    sizes = window.output_size(shape[0], shape[1])
    rows, columns = (
        Axis(shape[i], window.kernel[i], window.stride[i], window.dilation[i], window.pads[i], sizes[i]) for i in (0, 1)
    )
    return rows, columns


def touched(shape: Shape, window: ops.Window) -> ops.Window:
    """Cut the padding to what windows touch."""
    rows, columns = axes(shape, window)
    return replace(window, pads=(rows.before, columns.before, rows.after, columns.after))


def keras_padding(shape: Shape, window: ops.Window) -> Literal["VALID", "SAME"] | None:
    """Give TFLite's word for the padding; None if it has none."""
    rows, columns = axes(shape, window)
    if not any(touched(shape, window).pads):
        return "VALID"
    return "SAME" if rows.is_same and columns.is_same else None


def extensions(shape: Shape, window: ops.Window) -> tuple[int, int] | None:
    """Give the rows and columns to append so that SAME pads as wanted; None when no number does."""
    rows, columns = (axis.extension() for axis in axes(shape, window))
    return None if rows is None or columns is None else (rows, columns)
