"""How far an engine's values agree with torch's, layer by layer; and the contract that they are held to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitedge.export.ir import ops, reference
from bitedge.export.ir.epilogue import steps_of
from bitedge.export.ir.exactness import exact_values
from bitedge.export.ir.graph import Graph, Node

Array = NDArray[Any]

NEAR_ZERO = 1e-4
"""A sign may differ where a float layer came this close to 0, relative to its largest value."""


@dataclass
class LayerAgreement:
    """One value of bits, compared over all images."""

    name: str
    exact: bool
    differing: int = 0
    total: int = 0
    first: tuple[int, ...] | None = None

    def where(self) -> str:
        """Say where the first difference is."""
        if self.first is None:
            return ""
        image, row, column, channel = self.first
        return (
            f"{self.name!r} differs from torch in {self.differing:,} of {self.total:,} bits, first at image {image}, "
            f"row {row}, column {column}, channel {channel}"
        )


@dataclass
class Agreement:
    """Compares batches of values and remembers what broke the contract first."""

    graph: Graph
    signs: Mapping[str, str]
    layers: dict[str, LayerAgreement] = field(default_factory=dict)
    rounded: set[int] = field(default_factory=set)
    """Images in which a float layer's rounding turned a sign."""
    breach: str | None = None

    def __post_init__(self) -> None:
        self._exact = exact_values(self.graph)

    def compare(self, start: int, torch_values: Mapping[str, Array], values: Mapping[str, Array]) -> None:
        """Compare one batch; `start` is the number of its first image."""
        settled: set[int] = set()
        for node in self.graph.nodes:
            for name in node.outputs:
                if name in torch_values and name in values and torch_values[name].dtype == np.int8:
                    self._compare_bits(start, name, torch_values, values[name], settled)

    def _compare_bits(
        self, start: int, name: str, torch_values: Mapping[str, Array], found: Array, settled: set[int]
    ) -> None:
        layer = self.layers.setdefault(name, LayerAgreement(name, name in self._exact))
        expected = torch_values[name].reshape(found.shape)
        wrong = found != expected
        layer.total += wrong.size
        if not wrong.any():
            return
        layer.differing += int(wrong.sum())
        if layer.first is None:
            image, *place = (int(i) for i in np.argwhere(wrong)[0])
            layer.first = (start + image, *place)
        if layer.exact:
            self.breach = self.breach or f"layer {layer.where()}"
        for image in {int(i) for i in np.nonzero(wrong.any(axis=(1, 2, 3)))[0]} - settled:
            settled.add(image)
            self._excuse(start + image, layer, torch_values, wrong[image], image)

    def _excuse(
        self, number: int, layer: LayerAgreement, torch_values: Mapping[str, Array], wrong: Array, image: int
    ) -> None:
        """Accept an image's first different bits only where torch's own number is 0 but for rounding."""
        self.rounded.add(number)
        source = torch_values.get(self.signs.get(layer.name, ""))
        if source is None:
            return
        numbers = np.abs(source[image].reshape(wrong.shape))
        if numbers[wrong].max() > NEAR_ZERO * max(float(numbers.max()), 1e-30):
            self.breach = self.breach or f"layer {layer.where()}, where torch is not near 0"


_EXACT = (ops.BinaryConv2d, ops.ImageConv2d, ops.Concat, ops.GatherChannels)


def check_nodes(graph: Graph, values: Mapping[str, Array], *, rounds_once: bool) -> str | None:
    """Feed every integer layer the engine's own input and compare its output with the reference; None if all agree.

    An engine that does not round sum · scale + bias once is allowed its roundings, but only behind float layers.
    """
    exact = exact_values(graph)
    for node in graph.nodes:
        if not values.keys() >= {*node.inputs, *node.outputs}:
            continue
        pool_of_bits = isinstance(node.op, ops.MaxPool2d) and values[node.inputs[0]].dtype == np.int8
        if not isinstance(node.op, _EXACT) and not pool_of_bits:
            continue
        inputs, found = ([values[name] for name in names] for names in (node.inputs, node.outputs))
        strict = rounds_once or node.outputs[0] in exact
        for name, wrong in zip(node.outputs, _differing(node, inputs, found, strict), strict=True):
            if wrong.any():
                image, row, column, channel = (int(i) for i in np.argwhere(wrong)[0])
                return (
                    f"layer {name!r}, fed its own input, differs from its definition in {int(wrong.sum()):,} of "
                    f"{wrong.size:,} numbers, first at image {image}, row {row}, column {column}, channel {channel}"
                )
    return None


def _differing(node: Node, inputs: Sequence[Array], found: Sequence[Array], strict: bool) -> list[NDArray[np.bool_]]:
    """Tell for each output where it is another one than the reference's, beyond what float32 may round otherwise."""
    op, epilogue = node.op, ops.epilogue_of(node.op)
    if not isinstance(op, ops.BinaryConv2d | ops.ImageConv2d) or not isinstance(epilogue, ops.Affine | ops.Steps):
        return [want != got for want, got in zip(reference.evaluate_node(node, inputs), found, strict=True)]
    both = replace(node, op=replace(op, epilogue=replace(epilogue, emit="float+bits")))
    numbers, bits = reference.evaluate_node(both, inputs)
    if strict and isinstance(epilogue, ops.Affine):
        # The reference's float64 may round twice where an fma rounds once: a unit in the last place.
        margin: Array = np.spacing(np.abs(numbers))
        excused = np.zeros(numbers.shape, np.bool_)
    else:
        (sums,) = reference.evaluate_node(replace(node, op=replace(op, epilogue=None)), inputs[:1])
        margin = _rounding(steps_of(epilogue, len(inputs)), sums, inputs[1:])
        excused = np.abs(numbers) <= margin
    return [(bits != got) & ~excused if _is_bits(got) else np.abs(numbers - got) > margin for got in found]


def _is_bits(array: Array) -> bool:
    return array.dtype == np.int8


def _rounding(steps: Sequence[ops.Step], sums: Array, others: Sequence[Array]) -> Array:
    """How far two ways to compute an epilogue can be apart, if each rounds every product and every sum once.

    The error so far is scaled as the number is, and each step adds half a unit in the last place of its terms, on both
    sides; exponentials are good to 4 units and never steeper than 1.13.
    """
    unit = np.finfo(np.float32).eps
    y: NDArray[np.float32] = sums.astype(np.float32)
    error: Array = np.zeros(y.shape)
    entering = iter(others)
    for step in steps:
        other = next(entering).astype(np.float32) if step.reads else None
        if step.kind == "fma" and step.scale is not None and step.bias is not None:
            error = error * np.abs(step.scale) + unit * (2 * np.abs(y * step.scale) + np.abs(step.bias))
        elif step.kind == "multiply" and other is not None:
            error = error * np.abs(other)
        elif step.kind == "prelu" and step.slope is not None:
            error = error * np.maximum(1, np.abs(step.slope))
        elif step.kind not in ("add", "relu", "clamp"):
            error = 1.2 * error + 4 * unit * np.maximum(np.abs(y), 1)
        y = reference.apply_step(step, y, other)
        error = error + unit * (np.abs(y) if other is None else np.abs(y) + np.abs(other))
    margin: Array = 1.5 * error
    return margin
