"""Measure a set of rows: start each engine's process, check its answers, then time all of them in turns."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bitedge.cli.bench.engines import Engine
from bitedge.cli.bench.profile import typical
from bitedge.runtime.benchmark import Latency

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Job:
    """One row to be measured."""

    engine: Engine
    artifact: Path
    threads: int
    batch: int
    kernels: str | None = None
    profile: bool = False  # time the core's nodes too

    @property
    def title(self) -> str:
        """The engine's name, with the kernels where they were forced."""
        return f"{self.engine.name} {self.kernels}" if self.kernels else self.engine.name


class EngineFailed(Exception):
    """An engine's process could not do what was asked; `missing` names a package that is not installed."""

    def __init__(self, message: str, missing: str | None = None) -> None:
        super().__init__(message)
        self.missing = missing


class Worker:
    """The parent's end of one engine process."""

    def __init__(self, job: Job, images: Path, log: Path) -> None:
        """Start the process; `ready` waits until the engine is open."""
        words = {"engine": job.engine.name, "artifact": str(job.artifact), "threads": job.threads, "batch": job.batch}
        words |= {"kernels": job.kernels, "images": str(images)}
        self.job, self.log = job, log
        with log.open("w") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "bitedge.cli.bench.worker", json.dumps(words)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                text=True,
            )

    def ready(self) -> dict[str, Any]:
        """Wait for the engine's load and cold times."""
        return self._read()

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send one request and return its answer."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise EngineFailed(self._last_words()) from None
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise EngineFailed(self._last_words())
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise EngineFailed(answer["error"], answer["missing"])
        return answer

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return f"its process ended with code {self.process.wait()}: {lines[-1] if lines else 'no message'}"

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


@contextmanager
def workers(jobs: Sequence[Job], images: Path, folder: Path) -> Iterator[list[Worker]]:
    """Start one process per job, and end them all in the end."""
    started: list[Worker] = []
    try:
        for number, job in enumerate(jobs):
            started.append(Worker(job, images, folder / f"{number}.log"))
        yield started
    finally:
        for worker in started:
            worker.stop()


def agrees(answer: Array, reference: Array, tolerance: float) -> bool:
    """Whether two sets of logits are the same answer: every difference within `tolerance` of the logits' range."""
    if answer.shape != reference.shape or not np.isfinite(answer).all():
        return False
    span = np.maximum(1.0, np.ptp(reference, axis=1, keepdims=True))
    return bool((np.abs(answer - reference) <= tolerance * span).all())


@dataclass(frozen=True)
class Settings:
    """How long to measure and how close answers must be."""

    rounds: int = 20
    round_seconds: float = 0.1
    tolerance: float = 1e-3


def measure_rows(
    jobs: Sequence[Job],
    images: Array,
    reference: Array,
    settings: Settings,
    say: Callable[[str], None] = lambda _: None,
    labels: Array | None = None,
) -> list[dict[str, Any]]:
    """Measure every job and return its row of the report (docs/on-device.md describes the columns).

    The first images are those that `reference` answers, which every engine must answer alike; `labels` are of the
    others, on which each engine's own top-1 accuracy is counted.
    """
    with tempfile.TemporaryDirectory(prefix="bitedge-bench-") as name:
        folder = Path(name)
        np.save(folder / "images.npy", images)
        with workers(jobs, folder / "images.npy", folder) as started:
            rows = [_open(worker, folder, (reference, labels), settings, say) for worker in started]
            live = [(worker, row) for worker, row in zip(started, rows, strict=True) if row["status"] != "failed"]
            live = [(worker, row) for worker, row in live if row["status"] != "missing"]
            time_in_turns(live, settings, say)
    return rows


def _open(
    worker: Worker,
    folder: Path,
    expected: tuple[Array, Array | None],
    settings: Settings,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Wait for one engine and check its answers."""
    reference, labels = expected
    job = worker.job
    say(f"{job.title}, {job.threads} threads, batch {job.batch}: opening")
    row: dict[str, Any] = {"engine": job.title, "threads": job.threads, "batch": job.batch, "status": "ok"}
    row |= {"agrees": None, "ms": None, "images_per_s": None, "bytes": size_of(job.artifact), "peak_rss": None}
    try:
        row |= worker.ready()
        answer = folder / f"{id(worker)}.npy"
        worker.ask(do="check", answer=str(answer))
        answers = np.load(answer, allow_pickle=False)
        row["agrees"] = agrees(answers[: len(reference)], reference, settings.tolerance)
        if labels is not None:
            row["top1"] = float((answers[len(reference) :].argmax(axis=1) == labels).mean())
        if not row["agrees"]:
            row["status"] = "differs"
    except EngineFailed as error:
        row["status"], row["reason"] = ("missing", job.engine.install) if error.missing else ("failed", str(error))
    return row


def time_in_turns(
    live: Sequence[tuple[Worker, dict[str, Any]]], settings: Settings, say: Callable[[str], None]
) -> None:
    """Time all live engines in turns, so that a slow moment of the machine falls on all of them alike."""
    calls = []
    for worker, _ in live:
        warm = min(worker.ask(do="time", calls=3)["seconds"])
        calls.append(max(1, int(settings.round_seconds / max(warm, 1e-6))))
    samples: list[list[float]] = [[] for _ in live]
    nodes: list[list[list[float]]] = [[] for _ in live]
    for number in range(settings.rounds):
        if number % 5 == 0:
            say(f"measuring, round {number + 1} of {settings.rounds}")
        for (worker, row), count, durations, profile in zip(live, calls, samples, nodes, strict=True):
            answer = worker.ask(do="time", calls=count, profile=worker.job.profile)
            durations.extend(answer["seconds"])
            profile.extend(answer["nodes"])
            row["peak_rss"] = answer["peak_rss"]
    for (worker, row), durations, profile in zip(live, samples, nodes, strict=True):
        latency = Latency.of(np.asarray(durations))
        row["ms"] = latency.as_dict()
        row["images_per_s"] = 1e3 * worker.job.batch / latency.p50
        if profile:
            row["node_ms"] = [1e3 * seconds / worker.job.batch for seconds in typical(profile)]


def size_of(artifact: Path) -> int:
    """The bytes of a file, or of a run folder's weights."""
    return (artifact / "best.safetensors" if artifact.is_dir() else artifact).stat().st_size


def reference_answer(model: Path, images: Array) -> Array:
    """The answer that all rows must give: the core's own, by its scalar kernels, the readable reference."""
    from bitedge.runtime import Model

    return np.asarray(Model(model, kernels="scalar").run(images))


def as_json(host: Mapping[str, Any], net: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The report as data, in the documented shape."""
    order = [*("engine", "net", "threads", "batch", "status", "agrees", "ms", "images_per_s", "bytes", "peak_rss")]
    order += ["load_ms", "cold_ms", "top1", "layers", "reason"]
    documents = [{"net": net, "layers": [], **row} for row in rows]
    return {"host": dict(host), "rows": [{key: row.get(key) for key in order} for row in documents]}
