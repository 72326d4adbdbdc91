"""Every elementwise layer becomes an `elementwise` node, every bare accumulator gets an (empty) affine epilogue."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bitedge.export.errors import ExportError
from bitedge.export.ir import ops, reference
from bitedge.export.ir.graph import Graph, Node
from bitedge.export.lowering.thresholds import BatchNormFunction


def make_epilogues(graph: Graph, batch_norm: BatchNormFunction = reference.batch_norm) -> Graph:
    """Write batch_norm, add, relu, prelu and sign as elementwise nodes of one step each."""
    return graph.with_nodes(_rewrite(node, batch_norm) for node in graph.nodes)


def _rewrite(node: Node, batch_norm: BatchNormFunction) -> Node:
    op = node.op
    if isinstance(op, ops.Conv2d | ops.BinaryConv2d | ops.ImageConv2d):
        return node if op.epilogue is not None else replace(node, op=replace(op, epilogue=ops.Affine()))
    if isinstance(op, ops.BatchNorm):
        return replace(node, op=ops.Elementwise(_affine(node.layer, op, batch_norm)))
    if isinstance(op, ops.Prelu):
        return replace(node, op=ops.Elementwise(ops.Affine(activation="prelu", slope=op.slope)))
    if isinstance(op, ops.Relu):
        return replace(node, op=ops.Elementwise(ops.Affine(activation="relu")))
    if isinstance(op, ops.Sign):
        return replace(node, op=ops.Elementwise(ops.Affine(emit="bits")))
    if isinstance(op, ops.Add):
        return replace(node, op=ops.Elementwise(ops.Affine()))
    return node


def _affine(layer: str, op: ops.BatchNorm, batch_norm: BatchNormFunction) -> ops.Affine:
    """Read scale and bias off the caller's own BatchNorm: fma(1, scale, 0) and fma(0, scale, bias) do not round."""
    zero = np.zeros_like(op.mean)
    scale = batch_norm(replace(op, mean=zero, bias=zero), np.ones((1, len(zero)), np.float32))[0]
    bias = batch_norm(op, np.zeros((1, len(zero)), np.float32))[0]
    if not (np.isfinite(scale).all() and np.isfinite(bias).all()):
        raise ExportError(f"layer {layer!r}: its scale or bias overflows float32; its running variance is too small")
    return ops.Affine(scale, bias)
