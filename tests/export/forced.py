"""Compare a graph with known values node by node, each node fed what is known, so that one difference stays one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitedge.export import ops, reference
from bitedge.export.exactness import exact_values
from bitedge.export.graph import Graph

Array = NDArray[Any]
NEAR = 1e-5


def differences(graph: Graph, known: Mapping[str, Array], images: Array) -> list[str]:
    """Say where the reference interpreter, fed the known values, gives another result than the known one."""
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
            if not _agree(got, want, name in exact, known.get(signs.get(name, ""))):
                found.append(f"{name} ({node.op.name}): {int((got != want).sum())} of {got.size} differ")
    return found


def _agree(got: Array, want: Array, exact: bool, source: Array | None) -> bool:
    if exact or (got == want).all():
        return bool((got == want).all())
    scale = max(float(np.abs(want).max()), 1e-3)
    if got.dtype != np.int8:
        return bool(np.abs(got.astype(np.float64) - want).max() <= NEAR * scale)
    if source is None:
        return False
    numbers = np.abs(
        source.reshape(got.shape)
    )  # bits may differ only where the float before them is 0 but for rounding
    return bool(numbers[got != want].max() <= NEAR * max(float(numbers.max()), 1e-3))


def core_differences(graph: Graph, values: Mapping[str, Array]) -> list[str]:
    """Feed every node the core's own inputs and say where the core differs from the reference."""
    found = []
    for node in graph.nodes:
        results = reference.evaluate_node(node, [values[name] for name in node.inputs])
        sums = isinstance(node.op, ops.Conv2d | ops.AvgPool2d | ops.LayerNorm | ops.Softmax)
        floats = dict(zip(node.outputs, results, strict=True))
        for name, want in floats.items():
            got = values[name]
            if got.dtype == np.int8 and sums:
                continue  # decided by a float sum that may round otherwise; its float twin is compared where it is kept
            tolerance = NEAR * max(float(np.abs(want).max()), 1e-3) if sums else 0.0
            if np.abs(got.astype(np.float64) - want).max() > tolerance:
                found.append(f"{name} ({node.op.name}): {int((got != want).sum())} of {got.size} differ")
    return found
