"""The graph: named, typed values and the nodes that make them, in an order that can be run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from bitedge.export.errors import ExportError
from bitedge.export.ir.ops import Op

Shape = tuple[int, int, int]  # height, width, channels


class Kind(StrEnum):
    """What the elements of a value are; INT is the bare accumulator of a binary layer, only before lowering."""

    UINT8 = "uint8"
    FLOAT = "float32"
    INT = "int32"
    BITS = "bits"


@dataclass(frozen=True)
class Value:
    """One edge of the graph, for one image; the batch is outermost and not part of the shape."""

    name: str
    kind: Kind
    shape: Shape


@dataclass(frozen=True, eq=False)
class Node:
    """One operation. `layer` is the torch layer that it came from, `absorbed` are those that were fused into it."""

    op: Op
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    layer: str = ""
    absorbed: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Graph:
    """A network: one input, nodes in execution order, one answer."""

    name: str
    input: Value
    nodes: tuple[Node, ...]
    output: str

    def __post_init__(self) -> None:
        known = {self.input.name}
        for node in self.nodes:
            for name in node.inputs:
                if name not in known:
                    raise ExportError(f"graph: {node.op.name} of {node.layer!r} reads {name!r} before it is made")
            for name in node.outputs:
                if name in known:
                    raise ExportError(f"graph: two values are named {name!r}")
                known.add(name)
        if self.output not in known:
            raise ExportError(f"graph: the answer {self.output!r} is not made by any node")

    def with_nodes(self, nodes: Iterable[Node]) -> Graph:
        """Give the same network with other nodes."""
        return replace(self, nodes=tuple(nodes))

    def producers(self) -> Mapping[str, Node]:
        """Map each made value to its node; the input is not among them."""
        return {name: node for node in self.nodes for name in node.outputs}

    def consumers(self) -> Mapping[str, list[Node]]:
        """Map each value to the nodes that read it; the answer is read by nobody here."""
        readers: dict[str, list[Node]] = {self.input.name: []}
        for node in self.nodes:
            for name in node.inputs:
                readers[name].append(node)
            for name in node.outputs:
                readers[name] = []
        return readers


def splice(graph: Graph, replacements: Mapping[Node, Iterable[Node]]) -> Graph:
    """Put other nodes (or none) where some nodes stood; the rest keep their places."""
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes.extend(replacements.get(node, (node,)))
    return graph.with_nodes(nodes)


def prune(graph: Graph) -> Graph:
    """Drop every node whose outputs nobody needs."""
    needed = {graph.output}
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if needed.intersection(node.outputs):
            needed.update(node.inputs)
            kept.append(node)
    return graph.with_nodes(reversed(kept))
