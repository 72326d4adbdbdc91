"""Convolution and pooling of TFLite: SAME puts the odd pixel at the bottom and right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from bitedge.export.errors import ExportError

Options = Mapping[str, Any]
SAME, VALID = 0, 1


def same_pads(x: Tensor, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> list[int]:
    """Give top, left, bottom, right of SAME padding."""
    pads = [0, 0, 0, 0]
    for axis in (0, 1):
        size, step = x.shape[axis + 2], strides[axis]
        total = max((-(-size // step) - 1) * step + dilations[axis] * (kernel[axis] - 1) + 1 - size, 0)
        pads[axis], pads[axis + 2] = total // 2, total - total // 2
    return pads


def pads_of(
    o: Options, x: Tensor, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> list[int]:
    """Check a window and give its padding."""
    if x.ndim != 4 or min(*kernel, *strides, *dilations) < 1:
        raise ExportError(f"a window {list(kernel)} with strides {list(strides)} on {list(x.shape)} cannot be")
    if o.get("Padding") not in (SAME, VALID):
        raise ExportError(f"the padding {o.get('Padding')} is not supported, only SAME and VALID")
    return same_pads(x, kernel, strides, dilations) if o["Padding"] == SAME else [0, 0, 0, 0]


def padded(x: Tensor, pads: Sequence[int], value: float) -> Tensor:
    """Pad a map."""
    top, left, bottom, right = pads
    return F.pad(x, (left, right, top, bottom), value=value) if any(pads) else x


def strides_of(o: Options) -> list[int]:
    """Give the strides of an operator."""
    return [int(o.get("StrideH", 1)), int(o.get("StrideW", 1))]


def convolve(o: Options, x: Tensor, weight: Tensor, bias: Tensor | None, groups: int) -> Tensor:
    """Convolve with weights `[O, I, H, W]`, padded with zeros."""
    strides = strides_of(o)
    dilations = [int(o.get("DilationHFactor", 1)), int(o.get("DilationWFactor", 1))]
    pads = pads_of(o, x, list(weight.shape[2:]), strides, dilations)
    groups = groups if groups > 1 else x.shape[1] // weight.shape[1]
    if pads[:2] == pads[2:]:
        return F.conv2d(x, weight, bias, strides, pads[:2], dilations, groups)
    return F.conv2d(padded(x, pads, 0.0), weight, bias, strides, 0, dilations, groups)


def max_pool(o: Options, x: Tensor, lowest: float) -> Tensor:
    """Max-pool; padding holds the lowest number, which never wins."""
    kernel, strides = [int(o["FilterHeight"]), int(o["FilterWidth"])], strides_of(o)
    pads = pads_of(o, x, kernel, strides, (1, 1))
    return F.max_pool2d(padded(x, pads, lowest), kernel, strides)


def average_pool(o: Options, x: Tensor) -> Tensor:
    """Average; padding does not count."""
    kernel, strides = [int(o["FilterHeight"]), int(o["FilterWidth"])], strides_of(o)
    top, left, bottom, right = pads_of(o, x, kernel, strides, (1, 1))
    if (top, left) == (bottom, right):
        return F.avg_pool2d(x, kernel, strides, (top, left), count_include_pad=False)
    if (top, left) != (0, 0) and (bottom, right) != (top, left):
        raise ExportError(f"average pooling of {kernel} on {list(x.shape[2:])} with SAME padding on one side more")
    return F.avg_pool2d(x, kernel, strides, 0, ceil_mode=True, count_include_pad=False)
