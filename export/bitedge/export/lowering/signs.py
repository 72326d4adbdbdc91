"""Layers before a sign that never change it vanish: hardtanh, clamps around 0, tanh."""

from __future__ import annotations

from dataclasses import replace

from bitedge.export.ir import ops
from bitedge.export.ir.graph import Graph, prune


def drop_clamps(graph: Graph) -> Graph:
    """Let a sign read what a layer reads that keeps signs, and 0 at 0, if only the sign reads that layer."""
    while True:
        producers, consumers = graph.producers(), graph.consumers()
        for node in graph.nodes:
            source = producers.get(node.inputs[0]) if isinstance(node.op, ops.Sign) else None
            if source is None or not _keeps_sign(source.op) or len(consumers[source.outputs[0]]) > 1:
                continue
            if source.outputs[0] == graph.output:
                continue
            short = replace(node, inputs=source.inputs, absorbed=(source.layer, *node.absorbed))
            graph = prune(graph.with_nodes(short if other is node else other for other in graph.nodes))
            break
        else:
            return graph


def _keeps_sign(op: ops.Op) -> bool:
    if isinstance(op, ops.Clamp):
        return op.min < 0 < op.max
    return isinstance(op, ops.Function) and op.kind == "tanh"
