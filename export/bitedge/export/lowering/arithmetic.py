"""Torch's own arithmetic for the layers that are folded: what the network was trained with, to the last bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from bitedge.export.ir import ops, reference
from bitedge.export.ir.graph import Node

POINTWISE = (ops.BatchNorm, ops.Relu, ops.Prelu, ops.Scale, ops.Shift, ops.Clamp, ops.Function)
"""Layers of one input that work number by number, channel by channel."""

_FUNCTIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "hardsigmoid": F.hardsigmoid,
    "silu": F.silu,
    "hardswish": F.hardswish,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "tanh": torch.tanh,
}


def batch_norm(op: ops.BatchNorm, x: NDArray[Any]) -> NDArray[np.float32]:
    """Evaluate a BatchNorm over the last axis."""
    mean, variance, weight, bias = (
        torch.tensor(np.ascontiguousarray(array)) for array in (op.mean, op.variance, op.weight, op.bias)
    )
    flat = Tensor(np.ascontiguousarray(x, dtype=np.float32).reshape(-1, len(op.mean)))
    result: NDArray[np.float32] = F.batch_norm(flat, mean, variance, weight, bias, False, 0.0, op.eps).numpy()
    return result.reshape(x.shape)


def evaluate(node: Node, x: NDArray[Any]) -> NDArray[Any]:
    """Evaluate a pointwise layer; what float32 prescribes needs no torch."""
    if isinstance(node.op, ops.BatchNorm):
        return batch_norm(node.op, x)
    if isinstance(node.op, ops.Function):
        result: NDArray[np.float32] = _FUNCTIONS[node.op.kind](Tensor(x.astype(np.float32))).numpy()
        return result
    return reference.evaluate_node(node, [x])[0]
