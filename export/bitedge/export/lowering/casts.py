"""Bits that a float layer reads are written out as ±1 floats first."""

from __future__ import annotations

from dataclasses import replace

from bitedge.export.ir import ops
from bitedge.export.ir.graph import Graph, Kind, Node
from bitedge.export.ir.shapes import infer

FLOAT_ONLY = (ops.Conv2d, ops.AvgPool2d, ops.AdaptiveAvgPool2d, ops.LayerNorm, ops.GroupNorm, ops.Softmax)
"""Layers whose first input is float."""


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
        inputs = node.inputs
        if isinstance(node.op, FLOAT_ONLY):
            inputs = (as_float(node.inputs[0], node.layer), *node.inputs[1:])
        elif isinstance(node.op, ops.Concat | ops.GatherChannels) and values[node.outputs[0]].kind is Kind.FLOAT:
            inputs = tuple(as_float(name, node.layer) for name in node.inputs)
        elif isinstance(epilogue := ops.epilogue_of(node.op), ops.Steps):
            reads = [step for step in epilogue.steps if step.reads]
            factors = {number for number, step in enumerate(reads, start=1) if step.kind == "multiply"}
            inputs = tuple(as_float(name, node.layer) if i in factors else name for i, name in enumerate(inputs))
        nodes.append(replace(node, inputs=inputs))
    output = as_float(graph.output, "answer")
    return replace(graph, nodes=tuple(nodes), output=output)
