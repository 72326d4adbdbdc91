"""Every ONNX operator that can be read, as a function of torch.

A handler takes the node's attributes and its inputs. Inputs are tensors; with `static` those that do not depend on
the image are numpy arrays.
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
from bitedge.export.importers.onnx import shapes, windows

Attributes = Mapping[str, Any]


@dataclass(frozen=True)
class Operator:
    """How an operator is computed; `static` inputs are numpy arrays where they are constant."""

    function: Callable[..., Any]
    static: bool = False


def _unary(function: Callable[[Tensor], Any]) -> Operator:
    return Operator(lambda _a, x: function(x))


def _binary(function: Callable[[Any, Any], Any]) -> Operator:
    return Operator(lambda _a, x, y: function(x, y))


def _gemm(a: Attributes, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    if a.get("transA"):
        raise ExportError("transA is not supported")
    weight = w if a.get("transB") else w.t()
    if a.get("alpha", 1.0) != 1.0:
        weight = weight * a["alpha"]
    if bias is not None and a.get("beta", 1.0) != 1.0:
        bias = bias * a["beta"]
    if bias is not None and bias.numel() == 1:
        bias = bias.reshape(-1).expand(len(weight))
    return F.linear(x, weight, None if bias is None else bias.reshape(-1))


def _batch_norm(a: Attributes, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """onnxruntime's arithmetic: x · scale + shift with two roundings, where torch has one."""
    if a.get("training_mode"):
        raise ExportError("BatchNormalization in training mode is not supported")
    scale = (1 / torch.sqrt(variance + float(a.get("epsilon", 1e-5)))) * weight
    shift = bias - mean * scale
    sizes = (1, -1) + (1,) * (x.ndim - 2)
    return x * scale.reshape(sizes) + shift.reshape(sizes)


def _layer_norm(a: Attributes, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    axis = a.get("axis", -1) % x.ndim
    return F.layer_norm(x, tuple(x.shape[axis:]), weight, bias, a.get("epsilon", 1e-5))


def _instance_norm(a: Attributes, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.instance_norm(x, None, None, weight, bias, True, 0.0, a.get("epsilon", 1e-5))


def _group_norm(a: Attributes, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.group_norm(x, a["num_groups"], weight, bias, a.get("epsilon", 1e-5))


def _prelu(_a: Attributes, x: Tensor, slope: Tensor) -> Tensor:
    return F.prelu(x, slope.reshape(-1))


def _clip(a: Attributes, x: Tensor, low: Any = None, high: Any = None) -> Tensor:
    limits = [a.get("min") if low is None else float(low), a.get("max") if high is None else float(high)]
    return x if limits == [None, None] else torch.clamp(x, limits[0], limits[1])


def _hard_sigmoid(a: Attributes, x: Tensor) -> Tensor:
    alpha, beta = a.get("alpha", 0.2), a.get("beta", 0.5)
    if abs(alpha - 1 / 6) < 1e-6 and beta == 0.5:
        return F.hardsigmoid(x)
    return torch.clamp(x * alpha + beta, 0.0, 1.0)


def _gelu(a: Attributes, x: Tensor) -> Tensor:
    return F.gelu(x, approximate=a.get("approximate", "none"))


def _softmax(a: Attributes, x: Tensor) -> Tensor:
    return torch.softmax(x, a.get("axis", -1))


def _divide(x: Any, y: Any) -> Any:
    return x / y


def _power(_a: Attributes, x: Tensor, exponent: Any) -> Tensor:
    return torch.pow(x, float(np.asarray(exponent).reshape(())))


def _cast(a: Attributes, x: Tensor) -> Tensor:
    """Numbers are float32 throughout; comparisons become 0 and 1."""
    if a["to"] == 9:  # BOOL
        return x if x.dtype == torch.bool else x != 0
    if a["to"] not in (1, 11) and x.dtype != torch.bool:  # FLOAT, DOUBLE
        raise ExportError(f"a cast to ONNX type {a['to']} is not supported, only to float")
    return x.float()


def _dropout(_a: Attributes, x: Tensor, *_: Any) -> Tensor:
    return x


OPERATORS: Mapping[str, Operator] = {
    "Conv": Operator(windows.conv),
    "Gemm": Operator(_gemm),
    "MatMul": _binary(torch.matmul),
    "MaxPool": Operator(windows.max_pool),
    "AveragePool": Operator(windows.average_pool),
    "GlobalAveragePool": _unary(lambda x: torch.mean(x, (2, 3), keepdim=True)),
    "GlobalMaxPool": _unary(lambda x: torch.amax(x, (2, 3), keepdim=True)),
    "Pad": Operator(windows.pad, static=True),
    "BatchNormalization": Operator(_batch_norm),
    "LayerNormalization": Operator(_layer_norm),
    "InstanceNormalization": Operator(_instance_norm),
    "GroupNormalization": Operator(_group_norm),
    "Relu": _unary(torch.relu),
    "LeakyRelu": Operator(lambda a, x: F.leaky_relu(x, a.get("alpha", 0.01))),
    "PRelu": Operator(_prelu),
    "Clip": Operator(_clip, static=True),
    "Sigmoid": _unary(torch.sigmoid),
    "HardSigmoid": Operator(_hard_sigmoid),
    "HardSwish": _unary(F.hardswish),
    "Swish": _unary(F.silu),
    "Gelu": Operator(_gelu),
    "Tanh": _unary(torch.tanh),
    "Softmax": Operator(_softmax),
    "Add": _binary(lambda x, y: x + y),
    "Sub": _binary(lambda x, y: x - y),
    "Mul": _binary(lambda x, y: x * y),
    "Div": _binary(_divide),
    "Neg": _unary(torch.neg),
    "Abs": _unary(torch.abs),
    "Pow": Operator(_power, static=True),
    "Sign": _unary(torch.sign),
    "Greater": _binary(lambda x, y: x > y),
    "GreaterOrEqual": _binary(lambda x, y: x >= y),
    "Less": _binary(lambda x, y: x < y),
    "LessOrEqual": _binary(lambda x, y: x <= y),
    "Equal": _binary(lambda x, y: x == y),
    "Not": _unary(torch.logical_not),
    "Where": Operator(lambda _a, c, x, y: torch.where(c, x, y)),
    "Cast": Operator(_cast),
    "Identity": _unary(lambda x: x),
    "Dropout": Operator(_dropout),
    "Flatten": Operator(shapes.flatten),
    "Reshape": Operator(shapes.reshape, static=True),
    "Transpose": Operator(shapes.transpose),
    "Squeeze": Operator(shapes.squeeze, static=True),
    "Unsqueeze": Operator(shapes.unsqueeze, static=True),
    "Concat": Operator(shapes.concat),
    "Slice": Operator(shapes.cut, static=True),
    "Split": Operator(shapes.split, static=True),
    "Gather": Operator(shapes.gather, static=True),
    "ReduceMean": Operator(shapes.reduce(torch.mean), static=True),
    "ReduceMax": Operator(shapes.reduce(torch.amax), static=True),
    "ReduceSum": Operator(shapes.reduce(torch.sum), static=True),
}

REFUSALS: Mapping[str, str] = {
    "QLinearConv": "integer layers are not read; import the float file (model.onnx) instead",
    "ConvInteger": "integer layers are not read; import the float file (model.onnx) instead",
    "MatMulInteger": "integer layers are not read; import the float file (model.onnx) instead",
    "QuantizeLinear": "int8 quantization is not read; import the float network",
    "DequantizeLinear": "int8 quantization is not read; import the float network",
    "ConvTranspose": "transposed convolution is not supported",
    "Resize": "upsampling is not supported",
    "LSTM": "recurrent layers are not supported",
    "GRU": "recurrent layers are not supported",
    "ArgMax": "choosing a class is up to the caller; cut the graph before it",
    "LogSoftmax": "give the logits, or their softmax: the order is the same",
    "If": "control flow is not supported",
    "Loop": "control flow is not supported",
    "Scan": "control flow is not supported",
}
