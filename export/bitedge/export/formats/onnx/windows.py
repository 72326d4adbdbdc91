"""The windows of a convolution side by side, so that a matrix product can read them: `[N, rows, columns, taps]`.

One Gather copies one pixel per tap. Each copy costs about 9 ns, whether of 64 bytes or of 192, so where pixels are
narrow and windows overlap, whole rows of the kernel are copied instead. A row is KW neighbouring pixels, but a reshape
cuts the map into rows that do not overlap; so the map is written KW times, shifted by 0, 1, ... pixels, and every row
of every window lies whole in one of the copies.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitedge.export.formats.onnx.builder import OnnxBuilder
from bitedge.export.ir import ops
from bitedge.export.ir.graph import Shape

NARROW = 64  # bytes of a pixel up to which copies of the map cost less than they save (docs/performance.md)


def line_up(to: OnnxBuilder, x: str, shape: Shape, window: ops.Window, padding: str, name: str) -> str:
    """Give the windows of an NHWC tensor; their taps are in the order height, width, channel."""
    if window == ops.Window():
        return x
    rows, columns = window.output_size(*shape[:2])
    if _is_whole(shape, window):
        return to.reshape(x, [0, rows, columns, -1], f"{name}/columns")
    gather = _kernel_rows if _rows_pay(shape, window) else _pixels
    taps = gather(to, x, shape, window, padding, name)
    return to.reshape(taps, [0, rows, columns, -1], f"{name}/columns")


def index_size(shape: Shape, window: ops.Window) -> int:
    """Give how many numbers the file holds to say where the windows are."""
    if window == ops.Window() or _is_whole(shape, window):
        return 0
    rows, columns = window.output_size(*shape[:2])
    height, width = window.kernel
    return rows * columns * (height if _rows_pay(shape, window) else height * width)


def _is_whole(shape: Shape, window: ops.Window) -> bool:
    return window.kernel == shape[:2] and not any(window.pads)


def _rows_pay(shape: Shape, window: ops.Window) -> bool:
    overlap = window.kernel[1] > 1 and window.stride == (1, 1) and window.dilation[1] == 1
    return overlap and shape[2] <= NARROW


def _pixels(to: OnnxBuilder, x: str, shape: Shape, window: ops.Window, padding: str, name: str) -> str:
    """Gather pixel by pixel; the pixel after the last one stands for padding."""
    height, width, channels = shape
    y, x_ = _taps(window, shape, 0)[:, None, :, None], _taps(window, shape, 1)[None, :, None, :]
    inside = (y >= 0) & (y < height) & (x_ >= 0) & (x_ < width)
    index = np.where(inside, y * width + x_, height * width).astype(np.int32)
    pixels = to.reshape(x, [0, -1, channels], f"{name}/pixels")
    if not inside.all():
        one_more = to.constant(np.array([0, 0, 0, 0, 1, 0]), "one_more_pixel")
        pixels = to.add("Pad", [pixels, one_more, padding], f"{name}/padded")
    return to.add("Gather", [pixels, to.constant(index, f"{name}/taps")], f"{name}/windows", axis=1)


def _kernel_rows(to: OnnxBuilder, x: str, shape: Shape, window: ops.Window, padding: str, name: str) -> str:
    """Gather rows of the kernel out of copies of the map; the row that begins at column c is in copy -c mod KW."""
    height, width, channels = shape
    kernel_width = window.kernel[1]
    top, left, bottom, _ = window.pads
    column = np.arange(window.output_size(height, width)[1])
    shift, place = -column % kernel_width, -(-column // kernel_width)
    per_line = int(place.max()) + 1  # rows of the kernel in a line of one copy
    copies = []
    for extra in range(kernel_width):
        right = per_line * kernel_width - left - extra - width
        pads = to.constant(np.array([0, top, left + extra, 0, 0, bottom, right, 0]), f"{name}/pads")
        copies.append(to.add("Pad", [x, pads, padding], f"{name}/shifted"))
    together = to.add("Concat", copies, f"{name}/copies", axis=1)
    pieces = to.reshape(together, [0, -1, kernel_width * channels], f"{name}/rows")
    lines = _taps(window, shape, 0)[:, None, :] + top + (shift * (height + top + bottom))[:, None]
    taps = to.constant((lines * per_line + place[:, None]).astype(np.int32), f"{name}/taps")
    return to.add("Gather", [pieces, taps], f"{name}/windows", axis=1)


def _taps(window: ops.Window, shape: Shape, axis: int) -> NDArray[Any]:
    """Give the line (or column) of every tap of every window, `[outputs, taps]`; outside the map in the padding."""
    starts = np.arange(window.output_size(*shape[:2])[axis]) * window.stride[axis] - window.pads[axis]
    return starts[:, None] + np.arange(window.kernel[axis]) * window.dilation[axis]
