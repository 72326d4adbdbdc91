"""Time the layers of a model by several builds of the core, in turns on one set of cores.

    python runtime/tools/compare_libraries.py model.gguf old/libbitedge.so new/libbitedge.so --threads 1

Each library has a process of its own. A turn is a few calls, plain and profiled by turns. The table has the least time
of every layer in microseconds, then the least and the median of whole calls from Python.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

CALLS = 20  # of a turn


def serve(path: str, threads: int) -> None:
    """Run the model by the library that BITEDGE_LIBRARY names; each line of the input asks for a turn."""
    from bitedge.runtime import Model

    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    model = Model(path, threads=threads)
    shape = (1, *model.input_shape)
    image = np.random.default_rng(1).integers(0, 256, shape).astype(model.input_kind)
    names = [node.name for node in model.nodes]
    for _ in sys.stdin:
        calls, layers = [], []
        for _ in range(CALLS):
            start = time.perf_counter()
            model.run(image)
            calls.append(time.perf_counter() - start)
            layers.append(model.profile(image, runs=1))
        print(json.dumps({"names": names, "calls": calls, "layers": layers}), flush=True)


def measure(path: Path, libraries: list[Path], threads: int, rounds: int) -> dict[str, list[float]]:
    """The rows of the table: a time per library, in microseconds."""
    words = [sys.executable, __file__, "--serve", str(path), "--threads", str(threads)]
    children = [
        subprocess.Popen(
            words,
            env=os.environ | {"BITEDGE_LIBRARY": str(library)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for library in libraries
    ]
    turns: list[list[dict[str, list[float]]]] = [[] for _ in children]
    try:
        for _ in range(rounds + 1):
            for child, found in zip(children, turns, strict=True):
                found.append(json.loads(ask(child)))
    finally:
        for child in children:
            child.kill()
            child.communicate()
    rows: dict[str, list[float]] = {}
    for found in turns:
        names, settled = found[0]["names"], found[1:]  # the first turn warms up
        least = np.concatenate([turn["layers"] for turn in settled]).min(axis=0)
        calls = np.concatenate([turn["calls"] for turn in settled])
        times = dict(zip(names, least, strict=True)) | {"call, least": calls.min(), "call, median": np.median(calls)}
        for name, seconds in times.items():
            rows.setdefault(str(name), []).append(1e6 * float(seconds))
    return rows


def ask(child: subprocess.Popen[str]) -> str:
    """One turn of a child, or its last words as an error."""
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    try:
        child.stdin.write("turn\n")
        child.stdin.flush()
        answer = child.stdout.readline()
    except BrokenPipeError:
        answer = ""
    if not answer:
        print(f"compare_libraries: {child.stderr.read().strip().splitlines()[-1]}", file=sys.stderr)
        raise SystemExit(2)
    return answer


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="the model, then the libraries")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--serve", metavar="MODEL", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        return serve(args.serve, args.threads)
    if len(args.files) < 2 or min(args.threads, args.rounds) < 1:
        parser.error("expected a model, at least one library, and positive numbers")
    if missing := [str(path) for path in args.files if not path.is_file()]:
        parser.error(f"not a file: {', '.join(missing)}")
    path, *libraries = args.files
    rows = measure(path, libraries, args.threads, args.rounds)
    for number, library in enumerate(libraries, start=1):
        print(f"{number}: {library}")
    for name, times in rows.items():
        if max(times) > 0:  # layers that are fused into others take no time of their own
            print(f"{name:24s}" + "".join(f"{value:10.1f}" for value in times))
    return None


if __name__ == "__main__":
    main()
