"""Every TFLite operator that can be read, as a function of torch.

Tensors of four dimensions are channels first in torch and channels last in the file; all others stand as in the file.
A handler takes the operator's options and its inputs; constants of `static` operators are numpy arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bitedge.export.errors import ExportError
from bitedge.export.importers.tflite import binary, shapes
from bitedge.export.importers.tflite.windows import average_pool, convolve, max_pool

Options = Mapping[str, Any]
ACTIVATIONS: Mapping[int, Callable[[Tensor], Tensor]] = {
    0: lambda x: x,
    1: torch.relu,
    2: lambda x: torch.clamp(x, -1.0, 1.0),
    3: lambda x: torch.clamp(x, 0.0, 6.0),
    4: torch.tanh,
}


@dataclass(frozen=True)
class Operator:
    """How an operator is computed; constants of `static` operators are numpy arrays."""

    function: Callable[..., Any]
    static: bool = False


def activate(o: Options, x: Tensor) -> Tensor:
    """Apply the activation that is fused into an operator."""
    number = o.get("FusedActivationFunction", 0)
    if number not in ACTIVATIONS:
        raise ExportError(f"the fused activation {number} is not supported")
    return ACTIVATIONS[number](x)


def _unary(function: Callable[[Tensor], Any]) -> Operator:
    return Operator(lambda _o, x: function(x))


def _conv(o: Options, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return activate(o, convolve(o, x, weight.permute(0, 3, 1, 2), bias, 1))


def _depthwise(o: Options, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return activate(o, convolve(o, x, weight.permute(3, 0, 1, 2), bias, x.shape[1]))


def _dense(o: Options, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if o.get("WeightsFormat", 0) != 0:
        raise ExportError("shuffled weights are not supported")
    flat = shapes.channels_last(x).reshape(x.shape[0], -1)
    return activate(o, F.linear(flat, weight, bias))


def _arithmetic(function: Callable[[Any, Any], Any]) -> Operator:
    def handler(o: Options, x: Tensor, y: Tensor) -> Tensor:
        return activate(o, function(beside(x, y), beside(y, x)))

    return Operator(handler)


def beside(x: Tensor, other: Tensor) -> Tensor:
    """Give one number per channel, or per image and channel, the shape that it needs beside a map."""
    if other.ndim != 4 or x.ndim in (0, 4):
        return x
    if x.ndim == 2 and x.shape[0] in (1, other.shape[0]):  # a file has one image, so its vectors are [1, channels]
        return x[:, :, None, None]
    if x.ndim != 1 and x.numel() != x.shape[-1]:
        raise ExportError(
            f"a tensor of shape {list(x.shape)} beside a map is not supported, only one number per channel"
        )
    return x.reshape(1, -1, 1, 1)


def _prelu(_o: Options, x: Tensor, slope: Tensor) -> Tensor:
    if slope.numel() not in (1, x.shape[1]):
        raise ExportError(f"PReLU with slopes of shape {list(slope.shape)} is not supported, only one per channel")
    return F.prelu(x, slope.reshape(-1))


def _limit(low: bool) -> Operator:
    def handler(_o: Options, x: Any, y: Any) -> Tensor:
        x, y = (x, y) if isinstance(x, Tensor) else (y, x)
        if isinstance(y, Tensor) or np.size(y) != 1:
            raise ExportError("the maximum or minimum of two tensors is not supported, only with one number")
        number = float(np.ravel(y)[0])
        return torch.clamp(x, min=number) if low else torch.clamp(x, max=number)

    return Operator(handler, static=True)


def _softmax(o: Options, x: Tensor) -> Tensor:
    if o.get("Beta", 1.0) != 1.0:
        x = x * o["Beta"]
    return torch.softmax(x, 1 if x.ndim == 4 else -1)


OPERATORS: Mapping[str, Operator] = {
    "LceQuantize": _unary(lambda x: torch.where(x >= 0, 1.0, -1.0)),
    "LceDequantize": _unary(lambda x: x),
    "LceBconv2d": Operator(binary.bconv2d),
    "LceBMaxPool2d": Operator(binary.max_pool),
    "CONV_2D": Operator(_conv),
    "DEPTHWISE_CONV_2D": Operator(_depthwise),
    "FULLY_CONNECTED": Operator(_dense),
    "MAX_POOL_2D": Operator(lambda o, x: activate(o, max_pool(o, x, -torch.inf))),
    "AVERAGE_POOL_2D": Operator(lambda o, x: activate(o, average_pool(o, x))),
    "ADD": _arithmetic(lambda x, y: x + y),
    "SUB": _arithmetic(lambda x, y: x - y),
    "MUL": _arithmetic(lambda x, y: x * y),
    "DIV": _arithmetic(lambda x, y: x / y),
    "NEG": _unary(torch.neg),
    "SQUARE": _unary(torch.square),
    "RELU": _unary(torch.relu),
    "RELU6": _unary(F.relu6),
    "RELU_N1_TO_1": _unary(lambda x: torch.clamp(x, -1.0, 1.0)),
    "LEAKY_RELU": Operator(lambda o, x: F.leaky_relu(x, o.get("Alpha", 0.0))),
    "PRELU": Operator(_prelu),
    "MAXIMUM": _limit(low=True),
    "MINIMUM": _limit(low=False),
    "LOGISTIC": _unary(torch.sigmoid),
    "HARD_SWISH": _unary(F.hardswish),
    "TANH": _unary(torch.tanh),
    "GELU": Operator(lambda o, x: F.gelu(x, approximate="tanh" if o.get("Approximate") else "none")),
    "SOFTMAX": Operator(_softmax),
    "SIGN": _unary(torch.sign),
    "CONCATENATION": Operator(lambda o, *xs: activate(o, shapes.concat(o, *xs))),
    "PAD": Operator(shapes.pad, static=True),
    "PADV2": Operator(shapes.pad, static=True),
    "RESHAPE": Operator(shapes.reshape, static=True),
    "SQUEEZE": Operator(shapes.reshape, static=True),
    "EXPAND_DIMS": Operator(shapes.reshape, static=True),
    "TRANSPOSE": Operator(shapes.transpose, static=True),
    "SPLIT": Operator(shapes.split, static=True),
    "STRIDED_SLICE": Operator(shapes.strided_slice, static=True),
    "SLICE": Operator(shapes.cut, static=True),
    "MEAN": Operator(shapes.reduce(torch.mean), static=True),
    "REDUCE_MAX": Operator(shapes.reduce(torch.amax), static=True),
    "SUM": Operator(shapes.reduce(torch.sum), static=True),
}

REFUSALS: Mapping[str, str] = {
    "QUANTIZE": "int8 tensors are not read; convert the network without int8 quantization",
    "DEQUANTIZE": "int8 tensors are not read; convert the network without int8 quantization",
    "TRANSPOSE_CONV": "transposed convolution is not supported",
    "RESIZE_BILINEAR": "upsampling is not supported",
    "RESIZE_NEAREST_NEIGHBOR": "upsampling is not supported",
    "ARG_MAX": "choosing a class is up to the caller; convert the network without it",
    "MIRROR_PAD": "padding by reflection is not supported",
}
