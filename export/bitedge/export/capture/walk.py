"""Translate a program operator by operator: constants are computed, views and signs wait until they are read."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from bitedge.export.capture.builder import Builder, Symbol, View
from bitedge.export.capture.elementwise import compare
from bitedge.export.capture.idioms import SAME, STARTS, Step, settle_step, start, step
from bitedge.export.capture.operators import EXPANSIONS, HANDLERS, IGNORED, LIKE, VIEWS, refusal
from bitedge.export.capture.torch_export import Program
from bitedge.export.capture.views import rearrange, settle_view

aten = torch.ops.aten
_NETWORK = (Symbol, View, Step)
_BROADCASTING = {aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor}


class Walk:
    """The state of a translation: what every node of the program stands for."""

    def __init__(self, builder: Builder, program: Program, image: Symbol) -> None:
        self.b = builder
        self.program = program
        self.known: dict[fx.Node, Any] = {}
        for node in program.graph.graph.nodes:
            if node.op == "placeholder":
                self.known[node] = image if node.name == program.image else program.constants.get(node.name)
            elif node.op != "output":
                self.known[node] = self._translate(node)

    def answer(self) -> Any:
        """Give what the program returns."""
        return self._settled(self.program.answer)

    def symbols(self) -> dict[str, Symbol]:
        """Give the nodes of the program that are values of the graph."""
        return {node.name: known for node, known in self.known.items() if isinstance(known, Symbol)}

    def _translate(self, node: fx.Node) -> Any:
        args, options = _arguments(node, self.known.__getitem__)
        if not any(isinstance(value, _NETWORK) for value in _leaves((args, options))):
            with torch.no_grad():
                return node.target(*args, **options)  # type: ignore[operator]
        self.b.start(node)
        target: Any = node.target
        if target in IGNORED:
            return None
        if target is operator.getitem:
            return args[0][args[1]]
        if target in LIKE:
            shape = node.args[0].meta["val"]  # type: ignore[union-attr]
            return target(torch.zeros(tuple(shape.shape), dtype=shape.dtype), *args[1:], **options)
        found = step(target, *args, **options)
        if found is not None:
            return found
        if target in SAME:
            return self._same(args[0], options.get("dtype"))
        if target in VIEWS:
            return rearrange(self.b, target, *args, **options)
        if target in EXPANSIONS:
            return self._expand(node, args[0])
        return self._handle(node)

    def _handle(self, node: fx.Node) -> Any:
        args, options = _arguments(node, self._settled)
        self.b.start(node)
        target: Any = node.target
        if target in STARTS:
            return compare(self.b, target, *args) if len(args) == 2 else start(target, args[0])
        handler = HANDLERS.get(target)
        if handler is None:
            raise refusal(self.b, target)
        return handler(self.b, *args, **options)

    def _settled(self, node: fx.Node) -> Any:
        """Give what a node stands for with its views and signs made."""
        known = self.known[node]
        if isinstance(known, Step | View):
            self.b.start(node)
            if isinstance(known, Step):
                known = settle_step(self.b, known)
            if isinstance(known, View):
                known = settle_view(self.b, known)
            self.known[node] = known
        return known

    def _same(self, x: Any, dtype: torch.dtype | None) -> Any:
        if dtype not in (None, torch.float32):
            raise self.b.refuse(f"computes in {dtype}, expected float32")
        return x

    def _expand(self, node: fx.Node, x: Any) -> Any:
        """Leave broadcasting to the operator that reads the result."""
        if any(reader.target not in _BROADCASTING for reader in node.users):
            raise self.b.refuse("repeats elements, which is not supported before anything but a sum or a product")
        return x


def _arguments(node: fx.Node, known: Callable[[fx.Node], Any]) -> tuple[Any, Any]:
    found: Any = fx.map_arg((node.args, dict(node.kwargs)), known)
    return found[0], found[1]


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in _leaves(item)]
    if isinstance(value, dict):
        return _leaves(list(value.values()))
    return [value]
