"""The operators of Larq Compute Engine, with its arithmetic.

LCE counts the bits that differ, p = (K - acc) / 2 of K taps, and gives fl(fl(2p · -multiplier) + bias') with
bias' = fl(bias + K · multiplier). So (acc - K) · multiplier + bias', rounded twice, is the same to the last bit.
With zero padding it pads with ones and takes the surplus off in float32; here the sum is the exact one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bitedge.export.errors import ExportError
from bitedge.export.importers.tflite import windows

Options = Mapping[str, Any]
_CLAMPS: Mapping[int, tuple[float | None, float | None]] = {0: (None, None), 1: (0, None), 2: (-1, 1), 3: (0, 6)}


def bconv2d(
    o: Options, x: Tensor, weight: Tensor, multiplier: Tensor | None, bias: Tensor | None, threshold: Tensor | None
) -> Tensor:
    """Convolve ±1 with ±1 weights `[O, I, H, W]`; numbers, or bits where there are thresholds."""
    strides = [int(o.get("stride_height", 1)), int(o.get("stride_width", 1))]
    dilations = [int(o.get("dilation_height_factor", 1)), int(o.get("dilation_width_factor", 1))]
    activation, pad_value = int(o.get("fused_activation_function", 0)), int(o.get("pad_values", 0))
    if activation not in _CLAMPS or pad_value not in (0, 1):
        raise ExportError(f"the fused activation {activation} with pad_values {pad_value} is not supported")
    pads = windows.pads_of({"Padding": o.get("padding")}, x, list(weight.shape[2:]), strides, dilations)
    if x.shape[1] % weight.shape[1]:
        raise ExportError(f"weights for {weight.shape[1]} channels do not fit {x.shape[1]}")
    groups = x.shape[1] // weight.shape[1]
    spans = [d * (size - 1) + 1 for d, size in zip(dilations, weight.shape[2:], strict=True)]
    if pad_value == 0 and any(pads) and any(size < span for size, span in zip(x.shape[2:], spans, strict=True)):
        raise ExportError(
            f"zero padding of a map of {list(x.shape[2:])}, smaller than its window, is computed wrongly by Larq "
            "Compute Engine 0.16; convert the network for larger images"
        )
    if pad_value == 1:
        sums = F.conv2d(windows.padded(x, pads, 1.0), weight, None, strides, 0, dilations, groups)
    elif pads[:2] == pads[2:]:
        sums = F.conv2d(x, weight, None, strides, pads[:2], dilations, groups)
    else:
        sums = F.conv2d(windows.padded(x, pads, 0.0), weight, None, strides, 0, dilations, groups)
    taps = weight[0].numel()
    if threshold is not None:
        return torch.where(sums >= threshold.reshape(1, -1, 1, 1), 1.0, -1.0)
    low, high = _CLAMPS[activation]
    if (low, high) != (None, None):
        sums = torch.clamp(sums, low, high)
    if multiplier is None or bias is None:
        return sums
    zero_padded = pad_value == 0 and any(pads)
    factor, shift = multiplier.reshape(1, -1, 1, 1), bias.reshape(1, -1, 1, 1)
    if zero_padded:
        return sums * factor + shift
    return (sums - taps) * factor + (shift.double() + taps * factor.double()).float()


def max_pool(o: Options, x: Tensor) -> Tensor:
    """Maximum of bits."""
    options = {
        "FilterHeight": o.get("filter_height", 0),
        "FilterWidth": o.get("filter_width", 0),
        "StrideH": o.get("stride_height", 1),
        "StrideW": o.get("stride_width", 1),
        "Padding": o.get("padding"),
    }
    return windows.max_pool(options, x, -1.0)
