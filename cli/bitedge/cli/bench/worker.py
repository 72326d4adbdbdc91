"""One engine in a process of its own: it opens the artifact, then answers one JSON line with another.

`{"do": "check", "images": FILE.npy, "answer": FILE.npy}` runs all images; `{"do": "time", "calls": N}` times N calls,
and with `"profile": true` the core's nodes in as many calls between them.
Whatever an engine prints goes to standard error, so that the answers stay clean.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from bitedge.cli.bench.engines import ENGINES, LAYER_ENGINES, Core, Run


def pin(threads: int) -> None:
    """Keep this process to as many cores as it has threads, where the system allows."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[: max(1, min(threads, len(cores)))])


def check(run: Run, images: np.ndarray[Any, Any], batch: int) -> np.ndarray[Any, Any]:
    """The answers to all images, `batch` at a time, each as one row."""
    return np.concatenate([run(images[i : i + batch]) for i in range(0, len(images), batch)]).reshape(len(images), -1)


def timed(run: Run, images: np.ndarray[Any, Any], calls: int, profile: bool) -> dict[str, Any]:
    """The durations of `calls` calls, in seconds; and those of the nodes, in calls that take turns with them."""
    durations, nodes = [], []
    for _ in range(calls):
        start = time.perf_counter()
        run(images)
        durations.append(time.perf_counter() - start)
        if profile and isinstance(run, Core):
            nodes.append(run.nodes(images))
    return {"seconds": durations, "nodes": nodes}


def serve(job: Mapping[str, Any], answers: TextIO) -> None:
    """Open the engine that the job names, report how long that took, and answer requests until the input ends."""
    pin(job["threads"])
    engine = next(engine for engine in ENGINES + LAYER_ENGINES if engine.name == job["engine"])
    images = np.load(job["images"], allow_pickle=False)
    batch = np.ascontiguousarray(images[np.arange(job["batch"]) % len(images)])
    start = time.perf_counter()
    run = engine.open(Path(job["artifact"]), job["threads"], job["kernels"])
    loaded = time.perf_counter()
    run(batch)
    cold = time.perf_counter()

    def answer(document: Mapping[str, Any]) -> None:
        answers.write(json.dumps(document) + "\n")
        answers.flush()

    answer({"load_ms": 1e3 * (loaded - start), "cold_ms": 1e3 * (cold - loaded)})
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "check":
            np.save(request["answer"], check(run, images, job["batch"]))
            answer({})
        else:
            found = timed(run, batch, request["calls"], request.get("profile", False))
            answer(found | {"peak_rss": peak_rss()})


def peak_rss() -> int:
    """The most memory that this process has held, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def main() -> None:
    """Keep the real standard output for the answers, and serve the job given as the only argument."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    job = json.loads(sys.argv[1])
    try:
        serve(job, answers)
    except Exception as error:
        answers.write(json.dumps({"error": f"{type(error).__name__}: {error}", "missing": _missing(error)}) + "\n")
        answers.flush()
        raise


def _missing(error: Exception) -> str | None:
    return error.name if isinstance(error, ModuleNotFoundError) else None


if __name__ == "__main__":
    main()
