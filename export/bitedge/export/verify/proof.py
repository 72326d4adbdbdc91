"""The proof that every export carries out: torch against each written file, on seeded inputs and on given images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bitedge.export.errors import ExportError
from bitedge.export.ir import ops
from bitedge.export.ir.graph import Graph
from bitedge.export.ir.shapes import infer
from bitedge.export.verify.compare import verify_artifacts
from bitedge.export.verify.contract import Verdict
from bitedge.export.verify.golden import golden_input
from bitedge.export.verify.metadata import Metadata
from bitedge.export.verify.torch_values import sign_sources

if TYPE_CHECKING:
    from bitedge.export.capture.capture import Captured

Array = NDArray[Any]

SECONDS = 120.0
"""After this time no further batch is begun; the report says how many inputs there were."""
FIRST_SEED = 1_000_001  # others than those of golden vectors
_SEEDED = 8
_GIVEN = 64
_ELEMENTS = 2**25  # numbers of all values of all seeded inputs together


def proof_images(lowered: Graph, given: Array | None) -> Array:
    """Give seeded inputs, and some of the given images."""
    elements = sum(int(np.prod(value.shape)) for value in infer(lowered).values())
    count = max(2, min(_SEEDED, _ELEMENTS // elements))
    seeded = _coarse(golden_input(lowered.input, FIRST_SEED, count))
    if given is None or len(given) == 0:
        return seeded
    if given.shape[1:] != seeded.shape[1:] or given.dtype != seeded.dtype:
        raise ExportError(
            f"expected evaluation images {seeded.dtype} [N, {', '.join(map(str, seeded.shape[1:]))}], "
            f"got {given.dtype} {list(given.shape)}"
        )
    return np.concatenate([seeded, given[: min(_GIVEN, 4 * count + len(seeded))]])


def _coarse(images: Array) -> Array:
    """Give noise of several grains, from pixels to large patches: layers see more than one kind of input."""
    height, width = images.shape[1:3]
    for number, grain in enumerate((1, 4, 8, 16) * len(images)):
        if number < len(images):
            rows, columns = np.arange(height) // grain, np.arange(width) // grain
            images[number] = images[number][rows][:, columns]
    return images


def marked_signs(captured: Graph, lowered: Graph) -> dict[str, int]:
    """Give the signs that are not +1 at 0 in torch, by name; those folded into a threshold as they are do not count."""
    folded = {
        name
        for node in lowered.nodes
        if isinstance(ops.epilogue_of(node.op), ops.Threshold)
        for name in (*node.outputs, *(f"{name}".removesuffix(".unpooled") for name in node.outputs))
    }
    return {
        node.outputs[0]: node.op.at_zero
        for node in captured.nodes
        if isinstance(node.op, ops.Sign)
        and node.op.at_zero != 1
        and not (node.op.at_zero < 0 and node.outputs[0] in folded)
    }


def refuse_zeros(captured: Captured, marked: Sequence[str], images: Array) -> None:
    """Refuse the network if torch has an exact 0 before a sign that is not +1 there."""
    sources = {name: source for name, source in sign_sources(captured.graph).items() if name in marked}
    if not sources:
        return
    source_name = "torch" if captured.reference is None else captured.reference.name
    values = captured.tensors(images, set(sources.values()))
    for name, source in sources.items():
        zeros = int((values[source] == 0).sum()) if source in values else 0
        if zeros:
            raise ExportError(
                f"layer {name!r}: its input is exactly 0 in {zeros:,} places, where {source_name}'s sign is not +1 but "
                "that of every engine is; use bitedge.train's sign functions, or torch.where(x >= 0, 1, -1)"
            )


def prove(
    folder: Path, files: Sequence[str], captured: Captured, lowered: Graph, images: Array, metadata: Metadata
) -> Verdict:
    """Compare the files that were just written with torch, by the programs that ship."""
    return verify_artifacts(folder, captured, lowered, images, files=files, metadata=metadata, seconds=SECONDS)
