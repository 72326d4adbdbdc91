"""Float weights in half precision: half the bytes, for a small change of the answers."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
from torch import nn

from bitedge.export.errors import ExportError
from bitedge.export.ir import ops
from bitedge.export.ir.graph import Graph, Node
from bitedge.train.nn import BinaryLayer
from bitedge.train.nn.parameter import is_binary


def halve_weights(graph: Graph) -> Graph:
    """Round the weights of float convolutions to float16; scales, biases and thresholds stay as they are."""
    return graph.with_nodes(_halve(node) for node in graph.nodes)


def halved_module(module: nn.Module) -> nn.Module:
    """Give a copy whose float weights are rounded to float16, so that torch answers as such a file does."""
    copied = copy.deepcopy(module)
    for layer in copied.modules():
        if isinstance(layer, BinaryLayer):
            continue
        for parameter in layer.parameters(recurse=False):
            if parameter.ndim > 1 and not is_binary(parameter):
                parameter.data = parameter.data.half().float()
    return copied


def _halve(node: Node) -> Node:
    if not isinstance(node.op, ops.Conv2d):
        return node
    with np.errstate(over="ignore"):
        weight = node.op.weight.astype(np.float16)
    if not np.isfinite(weight).all():
        raise ExportError(f"layer {node.layer!r}: a weight is beyond float16 (65504); export without fp16")
    return replace(node, op=replace(node.op, weight=weight))
