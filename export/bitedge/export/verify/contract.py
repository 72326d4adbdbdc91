"""Verification: every artifact of an export against the torch module, on real images.

The contract (docs/architecture.md): values that only integers lead to agree in every bit; every integer layer is exact
when it is fed the same input; the answers lie within 1e-3 of torch's where all bits agree, and the best class is
the same for at least 99.9 % of the images.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bitedge.export.errors import ExportError
from bitedge.export.ir import ops
from bitedge.export.ir.exactness import exact_values
from bitedge.export.ir.graph import Graph
from bitedge.export.ir.shapes import infer
from bitedge.export.report.tables import text_table
from bitedge.export.verify.agreement import Agreement, LayerAgreement, check_nodes
from bitedge.export.verify.engines.engines import ENGINES, Engine, Session
from bitedge.export.verify.sensitivity import unsteady

if TYPE_CHECKING:
    from bitedge.export.capture.capture import Captured

Array = NDArray[Any]

TOLERANCE = 1e-3
TOP1 = 0.999
_BATCH_ELEMENTS = 2**25  # numbers of all values together in one batch: bounds memory
_EXCUSED = 64  # images of an engine without inner values that torch may excuse: each costs several runs of torch
_NODE_IMAGES = 2  # images on which every layer is compared with its definition, which is slow


@dataclass(frozen=True)
class EngineVerdict:
    """One engine's result; `skipped` says why it did not run, `breach` how it broke the contract."""

    engine: str
    file: str
    images: int = 0
    logit_error: float | None = None
    top1_agreement: float | None = None
    accuracy: float | None = None
    rounded_images: int = 0
    layers: tuple[LayerAgreement, ...] = ()
    skipped: str | None = None
    breach: str | None = None


@dataclass(frozen=True)
class Verdict:
    """The results of all engines."""

    network: str
    images: int
    exact: bool
    torch_accuracy: float | None
    engines: tuple[EngineVerdict, ...]

    @property
    def passed(self) -> bool:
        """Tell whether every engine that ran kept the contract, and at least one ran."""
        return not self.breach

    @property
    def breach(self) -> str:
        """Give the first breach of the contract, empty if there is none."""
        for row in self.engines:
            if row.breach:
                return f"{row.engine}: {row.breach}"
        if all(row.skipped for row in self.engines):
            return "no artifact could be run"
        return ""

    @property
    def summary(self) -> str:
        """Give the result in one line."""
        if self.breach:
            return f"FAILED: {self.breach}"
        ran = [row for row in self.engines if not row.skipped]
        agreement = min(row.top1_agreement or 0.0 for row in ran)
        names = ", ".join(row.engine for row in ran)
        return f"torch = {names} on {self.images:,} images: top-1 agreement {100 * agreement:.2f} %"

    def as_dict(self) -> dict[str, Any]:
        """Give everything as plain data."""
        return {"passed": self.passed, "summary": self.summary, **asdict(self)}

    def text(self) -> str:
        """Lay the result out for a terminal."""
        header = ("engine", "images", "top-1 as torch", "logit error", "accuracy", "bits differing", "result")
        rows: list[list[object]] = [["torch", self.images, "-", "-", _percent(self.torch_accuracy), "-", "reference"]]
        for row in self.engines:
            if row.skipped:
                rows.append([row.engine, "-", "-", "-", "-", "-", f"skipped: {row.skipped}"])
                continue
            bits = f"{sum(layer.differing for layer in row.layers):,} of {sum(layer.total for layer in row.layers):,}"
            error = "-" if row.logit_error is None else f"{row.logit_error:.1e}"
            result = "BREACH" if row.breach else "as the contract says"
            rows.append(
                [row.engine, row.images, _percent(row.top1_agreement), error, _percent(row.accuracy), bits, result]
            )
        parts = [text_table(header, rows)]
        for row in self.engines:
            if row.layers:
                parts.append(f"{row.engine}, layer by layer:\n" + _layer_table(row))
        return "\n\n".join([*parts, self.summary])


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f} %"


def _layer_table(row: EngineVerdict) -> str:
    rows = [
        [layer.name, "exact" if layer.exact else "after float layers", layer.total, layer.differing]
        for layer in row.layers
    ]
    return text_table(("bits of", "must be", "compared", "differing"), rows)


def verify_export(export_dir: str | os.PathLike[str], *, data: Path | None = None, limit: int | None = 1000) -> Verdict:
    """Verify every artifact in an export folder against the run that it was made from."""
    from bitedge.export.verify.rerun import reopen

    captured, lowered, half, images, labels = reopen(Path(export_dir), data, limit)
    return verify_artifacts(Path(export_dir), captured, lowered, images, labels, half=half)


def verify_artifacts(
    folder: Path,
    captured: Captured,
    lowered: Graph,
    images: Array,
    labels: NDArray[np.int64] | None = None,
    *,
    half: Captured | None = None,
) -> Verdict:
    """Verify the artifacts in a folder against a captured module; `half` is the same with float16 weights, if made."""
    if len(images) == 0:
        raise ExportError("there are no images to verify with")
    present = [engine for engine in ENGINES if (folder / engine.file_name).exists()]
    if not present:
        raise ExportError(f"{folder} holds no artifact; expected one of {', '.join(e.file_name for e in ENGINES)}")
    trials = [
        _Trial(engine, folder / engine.file_name, captured, lowered) for engine in present if not engine.missing()
    ]
    halved = [trial for trial in trials if trial.engine.half and half is not None]
    expected = _run_through(captured, lowered, images, [trial for trial in trials if trial not in halved])
    verdicts = {engine.name: _skipped(engine) for engine in present if engine.missing()}
    if half is not None and halved:
        rounded = _run_through(half, lowered, images, halved)
        verdicts |= {trial.engine.name: trial.verdict(half, images, rounded, labels) for trial in halved}
    whole = [trial for trial in trials if trial not in halved]
    verdicts |= {trial.engine.name: trial.verdict(captured, images, expected, labels) for trial in whole}
    accuracy = None if labels is None else float((expected.argmax(axis=1) == labels).mean())
    exact = lowered.output in exact_values(lowered)
    return Verdict(lowered.name, len(images), exact, accuracy, tuple(verdicts[engine.name] for engine in present))


def _skipped(engine: Engine) -> EngineVerdict:
    return EngineVerdict(engine.name, engine.file_name, skipped=engine.needs())


def _run_through(captured: Captured, lowered: Graph, images: Array, trials: Sequence[_Trial]) -> NDArray[np.float32]:
    """Run torch over all images once, show every batch to each engine, and give torch's answers."""
    answer = captured.graph.output
    wanted = {answer, *(name for pair in _sign_sources(captured.graph).items() for name in pair)}
    elements = sum(int(np.prod(value.shape)) for value in infer(lowered).values())
    size = max(1, min(256, _BATCH_ELEMENTS // elements))
    parts = []
    for start in range(0, len(images), size):
        batch = images[start : start + size]
        values = captured.tensors(batch, wanted)
        parts.append(values[answer].reshape(len(batch), -1).astype(np.float32))
        for trial in trials:
            trial.show(start, batch, values)
    return np.concatenate(parts)


class _Trial:
    """One engine on its artifact: what it answered, and how its values agreed."""

    def __init__(self, engine: Engine, path: Path, captured: Captured, lowered: Graph) -> None:
        self.engine = engine
        self._session: Session = engine.open(path)
        self._agreement = Agreement(lowered, _sign_sources(captured.graph))
        self._answers: list[NDArray[np.float32]] = []
        self._hidden = False

    def show(self, start: int, batch: Array, torch_values: Mapping[str, Array]) -> None:
        """Run a batch and compare it."""
        values = self._session.activations(batch)
        self._hidden = not values
        self._agreement.compare(start, torch_values, values)
        if start == 0:
            own = {name: array[:_NODE_IMAGES] for name, array in values.items()}
            self._agreement.breach = self._agreement.breach or check_nodes(
                self._agreement.graph, own, rounds_once=self.engine.rounds_once
            )
        answers = values.get(self._agreement.graph.output)
        self._answers.append(self._session.run(batch) if answers is None else answers.reshape(len(batch), -1))

    def verdict(
        self, captured: Captured, images: Array, expected: NDArray[np.float32], labels: NDArray[np.int64] | None
    ) -> EngineVerdict:
        """Judge all answers."""
        answers, agreement = np.concatenate(self._answers), self._agreement
        errors = _errors(answers, expected)
        if self._hidden and agreement.graph.output not in exact_values(agreement.graph):
            far = np.nonzero(~(errors <= TOLERANCE))[0][:_EXCUSED]
            agreement.rounded.update(far[unsteady(captured, images[far], TOLERANCE)].tolist())
        same = answers.argmax(axis=1) == expected.argmax(axis=1)
        return EngineVerdict(
            engine=self.engine.name,
            file=self.engine.file_name,
            images=len(answers),
            logit_error=float(errors.max()),
            top1_agreement=float(same.mean()),
            accuracy=None if labels is None else float((answers.argmax(axis=1) == labels).mean()),
            rounded_images=len(agreement.rounded),
            layers=tuple(agreement.layers.values()),
            breach=agreement.breach or _answer_breach(errors, same, agreement.rounded),
        )


def _sign_sources(graph: Graph) -> Mapping[str, str]:
    return {node.outputs[0]: node.inputs[0] for node in graph.nodes if isinstance(node.op, ops.Sign)}


def _errors(answers: Array, expected: Array) -> NDArray[np.float64]:
    """Give each image's largest difference, relative to its largest answer."""
    scale = np.maximum(np.abs(expected).max(axis=1), 1e-30)
    largest: NDArray[np.float64] = np.abs(answers.astype(np.float64) - expected).max(axis=1) / scale
    return largest


def _answer_breach(errors: NDArray[np.float64], same: NDArray[np.bool_], rounded: set[int]) -> str | None:
    far = [image for image in np.nonzero(~(errors <= TOLERANCE))[0] if int(image) not in rounded]
    if far:
        return f"the answer to image {far[0]} is off by {errors[far[0]]:.1e} of its size, allowed are {TOLERANCE:g}"
    if same.mean() < TOP1:
        first = int(np.nonzero(~same)[0][0])
        return f"the best class agrees for {100 * same.mean():.2f} % of the images, first other one: image {first}"
    return None
