"""Golden vectors: generated inputs and the answers to them, so that a device can check itself without data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitedge.export.ir import ops, reference
from bitedge.export.ir.graph import Graph, Value
from bitedge.runtime.golden import golden_images

COUNT = 2
_STEADY = 1e-4
_TRIES = 8
_NOISE = 1e-6


@dataclass(frozen=True, eq=False)
class Golden:
    """Answers `[count, outputs]` to the inputs that `seed`, `seed + 1`, ... generate."""

    seed: int
    output: NDArray[np.float32]


def golden_input(value: Value, seed: int, count: int = 1) -> NDArray[Any]:
    """Give the images `[count, H, W, C]` of a graph's input, uint8 or float32, as docs/format.md generates them."""
    return golden_images(value.kind.value, value.shape, seed, count)


def make_golden(graph: Graph, count: int = COUNT, first_seed: int = 1) -> Golden:
    """Answer generated inputs with the reference interpreter.

    An input whose answer hangs on the last rounding of a float layer (a sign of nearly 0) would accuse an innocent
    engine, so each seed is tried with float weights disturbed either way too, and the first steady one is taken.
    """
    disturbed = [other for size in (_NOISE, -_NOISE) if (other := _disturb(graph, size)) is not None]
    best: tuple[float, Golden] | None = None
    for attempt in range(_TRIES):
        seed = first_seed + attempt * count
        images = golden_input(graph.input, seed, count)
        answers = reference.run(graph, images)
        scale = max(1.0, float(np.abs(answers).max()))
        shifts = [float(np.abs(reference.run(other, images) - answers).max()) for other in disturbed]
        unsteady = max(shifts, default=0.0) / scale
        if best is None or unsteady < best[0]:
            best = (unsteady, Golden(seed, answers))
        if unsteady <= _STEADY:
            break
    assert best is not None
    return best[1]


def _disturb(graph: Graph, size: float) -> Graph | None:
    """Change float weights by such a part of themselves, more than engines differ by; None if there are none."""
    random = np.random.default_rng(0)

    def jitter(weight: NDArray[Any]) -> NDArray[np.float32]:
        noise = 1 + size * random.choice([-1.0, 1.0], weight.shape)
        return (weight.astype(np.float64) * noise).astype(np.float32)

    nodes, changed = [], False
    for node in graph.nodes:
        op = node.op
        if isinstance(op, ops.Conv2d):
            op = replace(op, weight=jitter(op.weight))
        elif isinstance(op, ops.LayerNorm):
            op = replace(op, weight=jitter(op.weight), bias=op.bias + jitter(op.weight) - op.weight)
        changed = changed or op is not node.op
        nodes.append(replace(node, op=op))
    return graph.with_nodes(nodes) if changed else None
