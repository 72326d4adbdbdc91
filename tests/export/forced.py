"""Compare a graph with known values node by node, each node fed what is known, so that one difference stays one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitedge.export.ir import ops, reference
from bitedge.export.ir.exactness import exact_values
from bitedge.export.ir.graph import Graph, Node

Array = NDArray[Any]
NEAR = 1e-5


APPROXIMATE = {"sigmoid", "tanh", "silu", "gelu", "gelu_tanh"}
SUMS = (ops.Conv2d, ops.AvgPool2d, ops.AdaptiveAvgPool2d, ops.LayerNorm, ops.GroupNorm, ops.Softmax)


def differences(graph: Graph, known: Mapping[str, Array], images: Array, *, merged: bool = False) -> list[str]:
    """Say where the reference interpreter, fed the known values, gives another result than the known one.

    Where shifts and scales were `merged`, exact numbers may be rounded otherwise than torch's; bits may not.
    """
    exact = exact_values(graph)
    signs = {f"{name}.sign": name for name in known}
    values: dict[str, Array] = {graph.input.name: images}
    found = []
    for node in graph.nodes:
        results = reference.evaluate_node(node, [values[name] for name in node.inputs])
        for name, got in zip(node.outputs, results, strict=True):
            values[name] = got
            if name not in known:
                continue
            want = known[name].reshape(got.shape)
            values[name] = want
            must = name in exact and not (merged and got.dtype != np.int8)
            inputs = [values[name] for name in node.inputs]
            allowed = _amplified_rounding(node, inputs) + NEAR * _before_clamps(node, inputs)
            if not _agree(got, want, must, known.get(signs.get(name, "")), allowed):
                found.append(f"{name} ({node.op.name}): {int((got != want).sum())} of {got.size} differ")
    return found


def _amplified_rounding(node: Node, inputs: list[Array]) -> float:
    """How far a normalization moves when its input is rounded otherwise: 300 times as far where a map is constant."""
    if not isinstance(node.op, ops.LayerNorm | ops.GroupNorm):
        return 0.0
    noise = np.random.default_rng(0).uniform(-(2**-23), 2**-23, inputs[0].shape)
    disturbed = (inputs[0] * (1 + noise)).astype(np.float32)
    return float(np.abs(_numbers(node, [disturbed, *inputs[1:]]) - _numbers(node, inputs)).max())


def _before_clamps(node: Node, inputs: list[Array]) -> float:
    """The largest number that is clamped away: it is rounded by its own size."""
    epilogue = ops.epilogue_of(node.op)
    if not isinstance(epilogue, ops.Steps):
        return 0.0
    steps = tuple(step for step in epilogue.steps if step.kind not in ("clamp", "relu"))
    bare = replace(node, op=replace(node.op, epilogue=replace(epilogue, steps=steps)))  # type: ignore[call-arg]
    return float(np.abs(_numbers(bare, inputs)).max())


def _agree(got: Array, want: Array, exact: bool, source: Array | None, allowed: float) -> bool:
    if exact or (got == want).all():
        return bool((got == want).all())
    scale = max(float(np.abs(want).max()), 1e-3)
    if got.dtype != np.int8:
        return bool(np.abs(got.astype(np.float64) - want).max() <= NEAR * scale + allowed)
    if source is None:
        return False
    numbers = np.abs(
        source.reshape(got.shape)
    )  # bits may differ only where the float before them is 0 but for rounding
    return bool(numbers[got != want].max() <= NEAR * max(float(numbers.max()), 1e-3))


def core_differences(graph: Graph, values: Mapping[str, Array], exact: Collection[str] | None = None) -> list[str]:
    """Feed every node the engine's own inputs and say where it differs from the reference.

    Without `exact` (the core) only sums of floats may round otherwise; with it, everything but these values.
    """
    found = []
    for node in graph.nodes:
        inputs = [values[name] for name in node.inputs]
        epilogue = ops.epilogue_of(node.op)
        steps = epilogue.steps if isinstance(epilogue, ops.Steps) else ()
        free = isinstance(node.op, SUMS) or any(step.kind in APPROXIMATE for step in steps)
        free = free or (exact is not None and node.outputs[0] not in exact)
        numbers = _numbers(node, inputs)
        near = NEAR * max(float(np.abs(numbers).max()), _before_clamps(node, inputs), 1e-3) if free else 0.0
        near += _amplified_rounding(node, inputs) if free else 0.0
        for name, want in zip(node.outputs, reference.evaluate_node(node, inputs), strict=True):
            got = values[name]
            wrong = np.abs(got.astype(np.float64) - want) > (0.0 if got.dtype == np.int8 else near)
            if got.dtype == np.int8 and free:
                wrong &= np.abs(numbers) > near  # a sign is decided by a number that may be rounded otherwise
            if wrong.any():
                found.append(f"{name} ({node.op.name}): {int(wrong.sum())} of {got.size} differ")
    return found


def _numbers(node: Node, inputs: list[Array]) -> Array:
    """What the node computes before it takes a sign, if it does."""
    epilogue = ops.epilogue_of(node.op)
    if isinstance(epilogue, ops.Affine | ops.Steps):
        node = replace(node, op=replace(node.op, epilogue=replace(epilogue, emit="float")), outputs=node.outputs[:1])  # type: ignore[call-arg]
    return reference.evaluate_node(node, inputs)[0]
