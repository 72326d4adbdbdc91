"""Every elementwise layer becomes an `elementwise` node, every bare accumulator gets an (empty) affine epilogue."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bitedge.export.errors import ExportError
from bitedge.export.ir import ops
from bitedge.export.ir.epilogue import from_steps
from bitedge.export.ir.graph import Graph, Node
from bitedge.export.ir.shapes import infer
from bitedge.export.lowering.arithmetic import batch_norm

LARGEST = float(np.finfo(np.float32).max)


def make_epilogues(graph: Graph) -> Graph:
    """Write what works number by number as elementwise nodes of one step each."""
    values = infer(graph)
    nodes = []
    for node in graph.nodes:
        if isinstance(node.op, ops.Conv2d | ops.BinaryConv2d | ops.ImageConv2d):
            bare = node.op.epilogue is None
            nodes.append(replace(node, op=replace(node.op, epilogue=ops.Affine())) if bare else node)
        elif isinstance(node.op, ops.Sign):
            nodes.append(replace(node, op=ops.Elementwise(ops.Affine(emit="bits"))))
        elif isinstance(node.op, ops.Multiply):
            inputs = node.inputs  # the map first, then the factor, which may be one number per channel
            if values[inputs[0]].shape != values[node.outputs[0]].shape:
                inputs = (inputs[1], inputs[0])
            nodes.append(Node(_elementwise(ops.Step("multiply")), inputs, node.outputs, node.layer))
        elif (step := _step(node, values[node.outputs[0]].shape[2])) is not None:
            nodes.append(replace(node, op=_elementwise(step)))
        else:
            nodes.append(node)
    return graph.with_nodes(nodes)


def _elementwise(step: ops.Step) -> ops.Elementwise:
    return ops.Elementwise(from_steps((step,), "float"))


def _step(node: Node, channels: int) -> ops.Step | None:
    """Give a layer as a step; x·scale and x + bias round as fma(x, scale, 0) and fma(x, 1, bias) do."""
    op = node.op
    ones, zeros = np.ones(channels, np.float32), np.zeros(channels, np.float32)
    if isinstance(op, ops.BatchNorm):
        return _batch_norm_step(node.layer, op)
    if isinstance(op, ops.Scale):
        return ops.Step("fma", scale=op.scale * ones, bias=zeros)
    if isinstance(op, ops.Shift):
        return ops.Step("fma", scale=ones, bias=op.bias + zeros)
    if isinstance(op, ops.Prelu):
        return ops.Step("prelu", slope=op.slope)
    if isinstance(op, ops.Function):
        return ops.Step(op.kind)
    if isinstance(op, ops.Relu) or (isinstance(op, ops.Clamp) and op.min == 0 and op.max >= LARGEST):
        return ops.Step("relu")
    if isinstance(op, ops.Clamp):
        return ops.Step("clamp", min=max(op.min, -LARGEST), max=min(op.max, LARGEST))
    return ops.Step("add") if isinstance(op, ops.Add) else None


def _batch_norm_step(layer: str, op: ops.BatchNorm) -> ops.Step:
    """Read scale and bias off torch's own BatchNorm: fma(1, scale, 0) and fma(0, scale, bias) do not round."""
    zero = np.zeros_like(op.mean)
    scale = batch_norm(replace(op, mean=zero, bias=zero), np.ones((1, len(zero)), np.float32))[0]
    bias = batch_norm(op, np.zeros((1, len(zero)), np.float32))[0]
    if not (np.isfinite(scale).all() and np.isfinite(bias).all()):
        raise ExportError(f"layer {layer!r}: its scale or bias overflows float32; its running variance is too small")
    return ops.Step("fma", scale=scale, bias=bias)
