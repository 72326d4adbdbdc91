"""Bits that a float layer reads are written out as ±1 floats first."""

from __future__ import annotations

from dataclasses import replace

from bitedge.export.ir import ops
from bitedge.export.ir.graph import Graph, Kind, Node
from bitedge.export.ir.shapes import infer

_FLOAT_ONLY = (ops.Conv2d, ops.AvgPool2d, ops.LayerNorm, ops.Softmax)


def cast_bits(graph: Graph) -> Graph:
    """Insert one elementwise node for every value of bits that a float layer, or the caller, reads."""
    values = infer(graph)
    floats: dict[str, str] = {}
    nodes: list[Node] = []

    def as_float(name: str, layer: str) -> str:
        if values[name].kind is not Kind.BITS:
            return name
        if name not in floats:
            floats[name] = f"{name}.float"
            nodes.append(Node(ops.Elementwise(ops.Affine()), (name,), (floats[name],), layer))
        return floats[name]

    for node in graph.nodes:
        if isinstance(node.op, _FLOAT_ONLY):
            inputs = (as_float(node.inputs[0], node.layer), *node.inputs[1:])
            nodes.append(replace(node, inputs=inputs))
        else:
            nodes.append(node)
    output = as_float(graph.output, "answer")
    return replace(graph, nodes=tuple(nodes), output=output)
