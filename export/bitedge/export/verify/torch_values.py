"""What torch gives for the signs of a graph: its own tensors, and signs of its own numbers where it keeps none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from bitedge.export.ir import ops, reference
from bitedge.export.ir.graph import Graph, Node

if TYPE_CHECKING:
    from bitedge.export.capture.capture import Captured

Array = NDArray[Any]


def sign_sources(graph: Graph) -> dict[str, str]:
    """Give for every sign the value whose sign it is."""
    return {node.outputs[0]: node.inputs[0] for node in graph.nodes if isinstance(node.op, ops.Sign)}


class TorchSigns:
    """Runs torch and gives its values before and behind every sign.

    A comparison that is flattened before it is read has no tensor of its own in torch; it is computed from the tensors
    before it. Lowering moves a padding behind the sign, so the sign without it is given too.
    """

    def __init__(self, captured: Captured) -> None:
        self._captured = captured
        graph = captured.graph
        self.sources = sign_sources(graph)
        self._producers = graph.producers()
        self._known = {symbol.value for symbol in captured.symbols.values()}
        self._wanted: set[str] = set()
        missing: set[str] = set()
        for name in {name for pair in self.sources.items() for name in pair}:
            self._want(name, missing)
        self._computed = [node for node in graph.nodes if missing.intersection(node.outputs)]
        self._padded = [(name, pad.op) for name, source in self.sources.items() if (pad := self._pad(source))]

    def _want(self, name: str, missing: set[str]) -> None:
        """Want a value of torch, or those that it is computed from."""
        if name in self._known or name not in self._producers:
            self._wanted.add(name)
        elif name not in missing:
            missing.add(name)
            for entering in self._producers[name].inputs:
                self._want(entering, missing)

    def _pad(self, name: str) -> Node | None:
        node = self._producers.get(name)
        return node if node is not None and isinstance(node.op, ops.Pad) else None

    def values(self, images: Array) -> dict[str, Array]:
        """Give them for NHWC images."""
        found = self._captured.tensors(images, self._wanted)
        for node in self._computed:
            if found.keys() >= set(node.inputs):
                found.update(
                    zip(node.outputs, reference.evaluate_node(node, [found[n] for n in node.inputs]), strict=True)
                )
        for name, op in self._padded:
            if name in found and isinstance(op, ops.Pad):
                top, left, bottom, right = op.pads
                height, width = found[name].shape[1:3]
                found[f"{name}.unpadded"] = found[name][:, top : height - bottom, left : width - right]
        return found
