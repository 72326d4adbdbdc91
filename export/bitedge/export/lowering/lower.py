"""Lowering: from the captured graph to the operators of docs/format.md, without changing a single bit."""

from __future__ import annotations

from bitedge.export.errors import ExportError
from bitedge.export.ir import limits, ops
from bitedge.export.ir.graph import Graph, Kind
from bitedge.export.ir.shapes import infer
from bitedge.export.lowering.casts import FLOAT_ONLY, cast_bits
from bitedge.export.lowering.epilogues import make_epilogues
from bitedge.export.lowering.flatten import absorb_flatten
from bitedge.export.lowering.fuse import fuse_epilogues
from bitedge.export.lowering.gathers import fold_gathers
from bitedge.export.lowering.pads import fold_pads
from bitedge.export.lowering.pixels import read_pixels
from bitedge.export.lowering.pooling import simplify_pools
from bitedge.export.lowering.signs import drop_clamps
from bitedge.export.lowering.thresholds import find_thresholds

PASSES = (
    fold_pads,
    absorb_flatten,
    simplify_pools,
    fold_gathers,
    read_pixels,
    drop_clamps,
    find_thresholds,
    make_epilogues,
    fuse_epilogues,
    cast_bits,
)


def lower(graph: Graph) -> Graph:
    """Lower a captured graph, with torch's own arithmetic where something is folded."""
    for lowering_pass in PASSES:
        graph = lowering_pass(graph)
    check_lowered(graph)
    return graph


def check_lowered(graph: Graph) -> None:
    """Refuse a graph that the packed format cannot hold."""
    values = infer(graph)
    if len(graph.nodes) > limits.NODES:
        raise ExportError(f"the network has {len(graph.nodes)} nodes, the format holds at most {limits.NODES}")
    for node in graph.nodes:
        bare = isinstance(node.op, ops.Conv2d | ops.BinaryConv2d | ops.ImageConv2d) and node.op.epilogue is None
        if not isinstance(node.op, ops.LOWERED) or bare:
            raise ExportError(f"layer {node.layer!r}: {node.op.name} has no lowered form")
    for node in graph.nodes:
        if isinstance(node.op, FLOAT_ONLY) and values[node.inputs[0]].kind is not Kind.FLOAT:
            raise ExportError(f"layer {node.layer!r}: {node.op.name} takes floats, not {values[node.inputs[0]].kind}")
    if values[graph.output].kind is not Kind.FLOAT:
        raise ExportError(f"the answer {graph.output!r} is {values[graph.output].kind}, expected floats")
