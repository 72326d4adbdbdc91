"""Window arithmetic of convolutions and poolings: pairs, and the padding rules of PyTorch and TensorFlow."""

from __future__ import annotations

from typing import Literal, TypeAlias

from bitedge.train.errors import TrainError

Padding: TypeAlias = int | tuple[int, int] | tuple[int, int, int, int] | Literal["tf_same"]


def pair(value: int | tuple[int, int], name: str) -> tuple[int, int]:
    """Return `(height, width)` from an int or a pair of positive ints."""
    height, width = (value, value) if isinstance(value, int) else value
    if height < 1 or width < 1:
        raise TrainError(f"{name} must be positive, got {value}")
    return height, width


def same_pads(size: int, kernel: int, stride: int, dilation: int = 1) -> tuple[int, int]:
    """Return TensorFlow's `SAME` padding of one axis, before and after: the output has `ceil(size / stride)` pixels."""
    total = max((-(-size // stride) - 1) * stride + dilation * (kernel - 1) + 1 - size, 0)
    return total // 2, total - total // 2


def resolve_pads(
    padding: Padding,
    size: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int] = (1, 1),
) -> tuple[int, int, int, int]:
    """Return `(top, left, bottom, right)` for a map of this size."""
    if padding == "tf_same":
        (top, bottom), (left, right) = (same_pads(*axis) for axis in zip(size, kernel, stride, dilation, strict=True))
        return top, left, bottom, right
    sides = (padding,) * 4 if isinstance(padding, int) else tuple(padding) * (2 if len(padding) == 2 else 1)
    if isinstance(padding, str) or len(sides) != 4 or any(not isinstance(side, int) or side < 0 for side in sides):
        raise TrainError(
            "padding must be a non-negative int, (height, width), (top, left, bottom, right) or 'tf_same', "
            f"got {padding!r}"
        )
    return sides[0], sides[1], sides[2], sides[3]
