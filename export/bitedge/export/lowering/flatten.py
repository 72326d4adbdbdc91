"""A dense layer after a flatten is a convolution whose kernel is the whole map."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bitedge.export.errors import ExportError
from bitedge.export.ir import ops
from bitedge.export.ir.graph import Graph, Node, Shape, prune, splice
from bitedge.export.ir.shapes import infer


def absorb_flatten(graph: Graph) -> Graph:
    """Give a graph without `flatten` nodes: they sink through what is elementwise and end in dense layers."""
    while True:
        found = next((node for node in graph.nodes if isinstance(node.op, ops.Flatten)), None)
        if found is None:
            return graph
        shape = infer(graph)[found.inputs[0]].shape
        changes: dict[Node, list[Node]] = {}
        sunk: dict[str, str] = {}
        for reader in graph.consumers()[found.outputs[0]]:
            changes[reader] = _absorb(graph, found, reader, shape)
            if len(changes[reader]) == 2:
                sunk[reader.outputs[0]] = changes[reader][1].outputs[0]
        graph = prune(_rewire(splice(graph, changes), sunk))


def _rewire(graph: Graph, renamed: Mapping[str, str]) -> Graph:
    """Let the readers of a value that is now a map read its flattened form instead."""
    flats = set(renamed.values())
    return graph.with_nodes(
        node
        if flats.intersection(node.outputs)
        else replace(node, inputs=tuple(renamed.get(n, n) for n in node.inputs))
        for node in graph.nodes
    )


def _absorb(graph: Graph, flat: Node, reader: Node, shape: Shape) -> list[Node]:
    op = reader.op
    if isinstance(op, ops.Conv2d | ops.BinaryConv2d):
        # Both orders are height, width, channel, so that the weights stay where they are.
        return [replace(reader, op=_whole_map(op, shape), inputs=flat.inputs)]
    if _same_everywhere(op):
        return _sink(reader, flat.inputs)
    if isinstance(op, ops.Add):
        sources = [graph.producers().get(name) for name in reader.inputs]
        if all(source is not None and isinstance(source.op, ops.Flatten) for source in sources):
            return _sink(reader, tuple(source.inputs[0] for source in sources if source is not None))
    raise ExportError(
        f"layer {reader.layer!r}: {op.name} on a flattened map of {shape[0]}x{shape[1]}x{shape[2]} is not supported; "
        "put it before the flatten, or after the dense layer"
    )


def _same_everywhere(op: ops.Op) -> bool:
    """Tell whether a layer does the same to every number, whichever channel it is in."""
    for kind, parameter in ((ops.Prelu, "slope"), (ops.Scale, "scale"), (ops.Shift, "bias")):
        if isinstance(op, kind):
            return bool(getattr(op, parameter).size == 1)
    return isinstance(op, ops.Sign | ops.Relu | ops.Clamp | ops.Function)


def _whole_map(op: ops.Conv2d | ops.BinaryConv2d, shape: Shape) -> ops.Op:
    window, outputs = ops.Window(shape[:2]), len(op.weight)
    if isinstance(op, ops.Conv2d):
        return replace(op, weight=op.weight.reshape(outputs, *shape), window=window)
    return replace(op, weight=op.weight.reshape(outputs, *shape), window=window)


def _sink(reader: Node, inputs: tuple[str, ...]) -> list[Node]:
    """Apply the reader to the map, which keeps the reader's name, and flatten its result."""
    name = reader.outputs[0]
    return [replace(reader, inputs=inputs), Node(ops.Flatten(), (name,), (f"{name}.flat",), reader.layer)]
