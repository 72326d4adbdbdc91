"""Convolution, pooling and padding of ONNX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bitedge.export.errors import ExportError

Attributes = Mapping[str, Any]


def _sizes(a: Attributes, x: Tensor, kernel: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """Give strides, dilations and pads (top, left, bottom, right)."""
    if x.ndim != 4 or len(kernel) != 2:
        raise ExportError(f"only two-dimensional maps [N, C, H, W] are supported, the input is {list(x.shape)}")
    strides, dilations = list(a.get("strides", (1, 1))), list(a.get("dilations", (1, 1)))
    pads, automatic = list(a.get("pads", (0, 0, 0, 0))), a.get("auto_pad", "NOTSET")
    if min(*strides, *dilations, *kernel) < 1 or len(strides) != 2 or len(dilations) != 2 or len(pads) != 4:
        raise ExportError(f"strides {strides}, dilations {dilations}, pads {pads} do not make a window")
    if automatic in ("SAME_UPPER", "SAME_LOWER"):
        pads = [0, 0, 0, 0]
        for axis in (0, 1):
            size, step = x.shape[axis + 2], strides[axis]
            total = max((-(-size // step) - 1) * step + dilations[axis] * (kernel[axis] - 1) + 1 - size, 0)
            pads[axis], pads[axis + 2] = total // 2, total - total // 2
            if automatic == "SAME_LOWER":
                pads[axis], pads[axis + 2] = pads[axis + 2], pads[axis]
    if min(pads) < 0:
        raise ExportError(f"negative padding (cropping) is not supported: {pads}")
    return strides, dilations, pads


def _padded(x: Tensor, pads: list[int], value: float) -> tuple[Tensor, list[int]]:
    """Pad by a node of its own where the two sides differ; give the padding that is left to the layer."""
    top, left, bottom, right = pads
    if (top, left) == (bottom, right):
        return x, [top, left]
    return F.pad(x, (left, right, top, bottom), value=value), [0, 0]


def conv(a: Attributes, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Convolve, with padding that may differ between the sides."""
    if not isinstance(weight, Tensor) or weight.ndim != 4:
        raise ExportError("only two-dimensional convolutions are supported")
    strides, dilations, pads = _sizes(a, x, list(weight.shape[2:]))
    x, padding = _padded(x, pads, 0.0)
    return F.conv2d(x, weight, bias, strides, padding, dilations, a.get("group", 1))


def max_pool(a: Attributes, x: Tensor) -> Tensor:
    """Max-pool; padding never wins."""
    kernel = list(a["kernel_shape"])
    strides, dilations, pads = _sizes(a, x, kernel)
    symmetric = pads[:2] == pads[2:] and all(2 * pad <= size for pad, size in zip(pads[:2], kernel, strict=True))
    if not symmetric:
        top, left, bottom, right = pads
        x, pads = F.pad(x, (left, right, top, bottom), value=-torch.inf), [0, 0, 0, 0]
    return F.max_pool2d(x, kernel, strides, pads[:2], dilations, ceil_mode=bool(a.get("ceil_mode", 0)))


def average_pool(a: Attributes, x: Tensor) -> Tensor:
    """Average; padding counts or not."""
    kernel, counts = list(a["kernel_shape"]), bool(a.get("count_include_pad", 0))
    strides, dilations, pads = _sizes(a, x, kernel)
    if dilations != [1, 1]:
        raise ExportError("average pooling with dilation is not supported")
    if pads[:2] != pads[2:] and not counts:
        raise ExportError(f"average pooling with pads {pads} that do not count is not supported")
    x, padding = _padded(x, pads, 0.0)
    return F.avg_pool2d(x, kernel, strides, padding, bool(a.get("ceil_mode", 0)), counts)


def pad(a: Attributes, x: Tensor, pads: Any = None, value: Any = None, axes: Any = None) -> Tensor:
    """Pad with a constant."""
    if a.get("mode", "constant") != "constant":
        raise ExportError(f"padding mode {a['mode']!r} is not supported, only 'constant'")
    given = [int(size) for size in np.asarray(a["pads"] if pads is None else pads).reshape(-1)]
    where = [int(i) % x.ndim for i in np.asarray(axes).reshape(-1)] if axes is not None else list(range(x.ndim))
    if len(given) != 2 * len(where) or min(given, default=0) < 0:
        raise ExportError(f"pads {given} do not fit {x.ndim} dimensions, or crop")
    sides = [(0, 0)] * x.ndim
    for number, axis in enumerate(where):
        sides[axis] = (given[number], given[number + len(where)])
    flat = [size for pair in reversed(sides) for size in pair]
    while len(flat) > 2 and flat[-2:] == [0, 0]:
        flat = flat[:-2]
    filling = a.get("value", 0.0) if value is None else float(np.asarray(value).reshape(-1)[0])
    return F.pad(x, flat, value=filling)
