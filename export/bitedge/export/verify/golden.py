"""Golden vectors: generated inputs and torch's answers to them, so that a device can check itself without data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bitedge.export.ir import reference
from bitedge.export.ir.graph import Graph, Value
from bitedge.runtime.golden import golden_images

if TYPE_CHECKING:
    from bitedge.export.capture.capture import Captured

COUNT = 2
FIRST_SEED = 1
_STEADY = 1e-4
_ATTEMPTS = 8
_TRIES = 4


@dataclass(frozen=True, eq=False)
class Golden:
    """Answers `[count, outputs]` to the inputs that `seed`, `seed + 1`, ... generate."""

    seed: int
    output: NDArray[np.float32]
    moved: float = 0.0
    """How far torch's own answers move, of their size, when float weights change by a millionth."""


def golden_input(value: Value, seed: int, count: int = 1) -> NDArray[Any]:
    """Give the images `[count, H, W, C]` of a graph's input, uint8 or float32, as docs/format.md generates them."""
    return golden_images(value.kind.value, value.shape, seed, count)


def torch_golden(captured: Captured, *, exact: bool, count: int = COUNT) -> Golden:
    """Answer generated inputs with torch.

    An input whose answer hangs on the last rounding of a float layer (a sign of nearly 0) would fail a correct engine.
    So unless every engine is `exact`, the first inputs whose answers stay when float weights change a little are taken.
    """
    from bitedge.export.verify.sensitivity import movement

    best: Golden | None = None
    for attempt in range(_ATTEMPTS):
        seed = FIRST_SEED + attempt * count
        images = golden_input(captured.graph.input, seed, count)
        moved = 0.0 if exact else float(movement(captured, images, _TRIES).max())
        if best is None or moved < best.moved:
            best = Golden(seed, captured.run(images), moved)
        if moved <= _STEADY:
            break
    assert best is not None
    return best


def reference_golden(graph: Graph, count: int = COUNT) -> Golden:
    """Answer generated inputs with the reference: for a graph that no module stands behind."""
    return Golden(FIRST_SEED, reference.run(graph, golden_input(graph.input, FIRST_SEED, count)))
