"""Run torch and every engine on the same images and compare: bits from inside, answers from the program that ships."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bitedge.export.errors import ExportError
from bitedge.export.ir import ops
from bitedge.export.ir.exactness import exact_values
from bitedge.export.ir.graph import Graph
from bitedge.export.ir.shapes import infer
from bitedge.export.verify.agreement import Agreement, check_nodes
from bitedge.export.verify.contract import TOLERANCE, EngineVerdict, Verdict, answer_breach, answer_errors
from bitedge.export.verify.engines.engines import ENGINES, Engine, Session
from bitedge.export.verify.metadata import Metadata, metadata_breach
from bitedge.export.verify.sensitivity import unsteady
from bitedge.export.verify.thresholds import threshold_breach
from bitedge.export.verify.torch_values import TorchSigns, sign_sources

if TYPE_CHECKING:
    from bitedge.export.capture.capture import Captured

Array = NDArray[Any]

_BATCH_ELEMENTS = 2**25  # numbers of all values together in one batch: bounds memory
_EXCUSED = 64  # far answers that torch may excuse: each costs several runs of torch
_NODE_IMAGES = 2  # images on which every layer is compared with its definition, which is slow


def verify_artifacts(
    folder: Path,
    captured: Captured,
    lowered: Graph,
    images: Array,
    labels: NDArray[np.int64] | None = None,
    *,
    files: Sequence[str] | None = None,
    require: Sequence[str] = (),
    metadata: Metadata | None = None,
    seconds: float | None = None,
) -> Verdict:
    """Verify the artifacts in a folder against a captured module.

    `files` limits it to these, `require` names engines that must run, `metadata` is what the files should say beside
    the network, `seconds` ends the comparison early, but not before the first batch.
    """
    if len(images) == 0:
        raise ExportError("there are no images to verify with")
    present = _present(folder, files, require)
    runs = [
        _EngineRun(engine, folder / engine.file_name, captured, lowered) for engine in present if not engine.needs()
    ]
    wrong_threshold = threshold_breach(captured, lowered)
    for run in runs:
        run.agreement.breach = wrong_threshold
    expected = _run_all(captured, lowered, images, runs, seconds)
    seen = images[: len(expected)]
    known = None if labels is None else labels[: len(expected)]
    verdicts = {run.engine.name: run.verdict(seen, expected, known, metadata) for run in runs}
    for engine in present:
        if reason := engine.needs():
            required = engine.name in require
            verdicts[engine.name] = EngineVerdict(engine.name, engine.file_name, skipped=reason, required=required)
    accuracy = None if known is None else float((expected.argmax(axis=1) == known).mean())
    exact = lowered.output in exact_values(lowered)
    return Verdict(lowered.name, len(seen), exact, accuracy, tuple(verdicts[engine.name] for engine in present))


def _present(folder: Path, files: Sequence[str] | None, require: Sequence[str]) -> list[Engine]:
    """Give the engines whose artifact is there."""
    table = {engine.name: engine for engine in ENGINES}
    for name in require:
        if name not in table:
            raise ExportError(f"there is no engine {name!r}; the engines are {', '.join(table)}")
        if not (folder / table[name].file_name).exists():
            raise ExportError(f"the engine {name!r} is required, but {folder / table[name].file_name} is not there")
    present = [engine for engine in ENGINES if (folder / engine.file_name).exists()]
    present = [engine for engine in present if files is None or engine.file_name in files]
    if not present:
        raise ExportError(f"{folder} holds no artifact; expected one of {', '.join(e.file_name for e in ENGINES)}")
    return present


def _run_all(
    captured: Captured, lowered: Graph, images: Array, runs: Sequence[_EngineRun], seconds: float | None
) -> NDArray[np.float32]:
    """Run torch over the images, show every batch to each engine, and give torch's answers."""
    torch_signs = TorchSigns(captured)
    elements = sum(int(np.prod(value.shape)) for value in infer(lowered).values())
    size = max(1, min(256, _BATCH_ELEMENTS // elements))
    start, begun, parts = 0, time.monotonic(), []
    while start < len(images):
        batch = images[start : start + size]
        values = torch_signs.values(batch)
        parts.append(captured.run(batch))
        for run in runs:
            run.show(start, batch, values)
        start += size
        if seconds is not None and time.monotonic() - begun > seconds:
            break
    return np.concatenate(parts)


class _EngineRun:
    """One engine on its artifact: what it answered, and how its values agreed."""

    def __init__(self, engine: Engine, path: Path, captured: Captured, lowered: Graph) -> None:
        self.engine = engine
        self._captured = captured
        self.agreement = Agreement(lowered, sign_sources(captured.graph))
        self._answers: list[NDArray[np.float32]] = []
        self._shows_values = False
        self._failure: str | None = None
        self._session: Session | None = None
        with self._failing():
            self._session = engine.open(path)

    def _failing(self) -> _Failing:
        return _Failing(self)

    def fail(self, reason: str) -> None:
        """Note the first thing that went wrong."""
        self._failure = self._failure or reason

    def show(self, start: int, batch: Array, torch_values: Mapping[str, Array]) -> None:
        """Run a batch and compare it."""
        session = self._session
        if session is None or self._failure:
            return
        with self._failing():
            values = session.activations(batch)
            self._shows_values = bool(values)
            self.agreement.compare(start, torch_values, values)
            answers = session.run(batch)
            self._answers.append(answers)
            if start == 0 and not self.agreement.breach:
                own = {name: array[:_NODE_IMAGES] for name, array in values.items()}
                self.agreement.breach = check_nodes(self.agreement.graph, own, rounds_once=self.engine.rounds_once)
            inner = values.get(self.agreement.graph.output)
            if self.engine.repeatable and inner is not None:
                self._compare_programs(start, answers, inner.reshape(answers.shape))

    def _compare_programs(self, start: int, answers: Array, inner: Array) -> None:
        """The program that ships fuses steps; the one that shows values does not, and must give the same."""
        errors = answer_errors(answers, inner)
        if not (errors <= TOLERANCE).all():
            image = int(np.argmax(~(errors <= TOLERANCE)))
            self.agreement.breach = self.agreement.breach or (
                f"the fused program answers image {start + image} otherwise than the layers one by one, "
                f"by {errors[image]:.1e} of its size"
            )

    def verdict(
        self, images: Array, expected: NDArray[np.float32], labels: NDArray[np.int64] | None, metadata: Metadata | None
    ) -> EngineVerdict:
        """Judge all answers."""
        name, file, agreement = self.engine.name, self.engine.file_name, self.agreement
        if self._session is None or self._failure or not self._answers:
            return EngineVerdict(name, file, breach=self._failure or "gave no answer")
        answers = np.concatenate(self._answers)
        if answers.shape != expected.shape:
            return EngineVerdict(name, file, breach=f"answers {answers.shape}, torch {expected.shape}")
        errors = answer_errors(answers, expected)
        excused = agreement.rounded | self._sensitive(images, errors)
        breach = agreement.breach or self._no_bits() or self._answer_breach(images, answers, expected, excused)
        with self._failing():
            if metadata is not None:
                breach = breach or metadata_breach(self._session.metadata(), metadata)
            if not breach:
                self._session.check()
        return EngineVerdict(
            engine=name,
            file=file,
            images=len(answers),
            logit_error=float(errors.max()),
            top1_agreement=float((answers.argmax(axis=1) == expected.argmax(axis=1)).mean()),
            accuracy=None if labels is None else float((answers.argmax(axis=1) == labels).mean()),
            rounded_images=len(excused),
            layers=tuple(agreement.layers.values()),
            breach=breach or self._failure,
        )

    def _sensitive(self, images: Array, errors: NDArray[np.float64]) -> set[int]:
        """Give the far answers that move in torch too when its float weights change by a millionth."""
        if self.agreement.graph.output in exact_values(self.agreement.graph):
            return set()
        far = np.nonzero(~(errors <= TOLERANCE))[0]
        far = far[~np.isin(far, sorted(self.agreement.rounded))][:_EXCUSED]
        return set(far[unsteady(self._captured, images[far], TOLERANCE)].tolist())

    def _no_bits(self) -> str | None:
        """A network with binary layers of which no bit was compared has proved nothing."""
        binary = any(isinstance(node.op, ops.BinaryConv2d) for node in self.agreement.graph.nodes)
        compared = sum(layer.total for layer in self.agreement.layers.values())
        if binary and self._shows_values and compared == 0:
            return "no bit of a binary layer could be compared: the file names its values otherwise than the network"
        return None

    def _answer_breach(self, images: Array, answers: Array, expected: Array, excused: set[int]) -> str | None:
        breach = answer_breach(answers, expected, excused)
        if breach is None:
            if not self._shows_values and len(excused) == len(answers):
                return "every answer hangs on rounding, so none says anything; verify with real images"
            return None
        assert self._session is not None
        first = int(np.argmax([e if i not in excused else -1 for i, e in enumerate(answer_errors(answers, expected))]))
        where = first_difference(self._captured, self.agreement.graph, self._session, images[first : first + 1])
        return f"{breach}; {where}" if where else breach


class _Failing:
    """Turns what an engine raises into the reason why it failed."""

    def __init__(self, run: _EngineRun) -> None:
        self._run = run

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if not isinstance(error, Exception):
            return False
        self._run.fail(str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__)
        return True


def first_difference(captured: Captured, lowered: Graph, session: Session, image: Array) -> str:
    """Name the first layer whose numbers are not torch's; empty if the engine hides them or none is."""
    own, truth = session.activations(image), captured.tensors(image)
    for node in lowered.nodes:
        for name in node.outputs:
            if name not in own or name not in truth:
                continue
            found, expected = (array.astype(np.float64).ravel() for array in (own[name], truth[name]))
            error = np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-30)
            if not error <= TOLERANCE:
                return f"the first layer that differs is {name!r}, by {error:.1e} of its size"
    return ""
