"""Time the layers of a model by several builds of the core, in turns on one set of cores.

    python runtime/tools/compare_libraries.py model.gguf old/libbitedge.so new/libbitedge.so --threads 1

Each library has a process of its own. A turn is a few calls, plain and profiled by turns. The table has the least time
of every layer in microseconds, then the least and the median of whole calls. Behind them is, for each library but the
first, the median over the turns of its time by the first one's, which a busy machine changes least.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import time
from ctypes import byref, c_char_p, c_int32, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CALLS = 20  # of a turn


class ContextOptions(ctypes.Structure):
    """The fields of `bitedge_context_options` that every version of the library has."""

    _fields_ = (("struct_size", c_size_t), ("threads", c_int32), ("keep_values", c_int32))


def serve(path: str, threads: int) -> None:
    """Run the model by the library that BITEDGE_LIBRARY names; each line of the input asks for a turn.

    By the C functions that every version has, since the Python binding wants those of its own version.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    core = ctypes.CDLL(os.environ["BITEDGE_LIBRARY"])
    core.bitedge_last_error.restype = core.bitedge_model_describe.restype = c_char_p

    def call(name: str, *arguments: object) -> None:
        if getattr(core, name)(*arguments):
            raise SystemExit(core.bitedge_last_error().decode(errors="replace"))

    model, context = c_void_p(), c_void_p()
    call("bitedge_model_load_file", os.fsencode(path), None, byref(model))
    graph = json.loads(core.bitedge_model_describe(model))
    options = ContextOptions(ctypes.sizeof(ContextOptions), threads, 0)
    call("bitedge_context_create", model, byref(options), byref(context))
    image = np.random.default_rng(1).integers(0, 256, graph["input"]["shape"]).astype(graph["input"]["kind"])
    output = np.empty(graph["output"]["shape"], np.float32)
    buffers = (c_void_p(image.ctypes.data), c_size_t(image.nbytes), c_size_t(1), c_void_p(output.ctypes.data))
    names = [node["name"] for node in graph["nodes"]]
    nanoseconds = (c_uint64 * len(names))()
    for _ in sys.stdin:
        calls, layers = [], []
        for number in range(2 * CALLS):
            call("bitedge_context_set_profiling", context, number % 2)
            start = time.perf_counter()
            call("bitedge_context_run", context, *buffers, c_size_t(output.nbytes))
            calls.append(time.perf_counter() - start)
            if number % 2:
                call("bitedge_context_profile", context, nanoseconds, c_size_t(len(names)))
                layers.append([1e-9 * value for value in nanoseconds])
        print(json.dumps({"names": names, "calls": calls[::2], "layers": layers}), flush=True)


def measure(path: Path, libraries: list[Path], threads: int, rounds: int) -> dict[str, list[float]]:
    """The rows of the table: a time per library in microseconds, and the ratios to the first."""
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
    turns: list[list[dict[str, NDArray[Any]]]] = [[] for _ in children]
    try:
        for _ in range(rounds + 1):
            for child, found in zip(children, turns, strict=True):
                answer = json.loads(ask(child))
                found.append({name: np.array(values) for name, values in answer.items()})
    finally:
        for child in children:
            child.kill()
            child.communicate()
    settled = turns[0][1:]  # the first turn warms up
    rows: dict[str, list[float]] = {}
    for number, name in enumerate(settled[0]["names"]):
        rows[str(name)] = compared([[turn["layers"][:, number] for turn in found[1:]] for found in turns])
    calls = [[turn["calls"] for turn in found[1:]] for found in turns]
    rows["call, least"] = compared(calls)
    rows["call, median"] = [1e6 * float(np.median(found)) for found in calls] + rows["call, least"][len(children) :]
    return rows


def compared(turns: list[list[NDArray[np.float64]]]) -> list[float]:
    """The least time of each library in microseconds, then the ratios to the first one."""
    middle = np.array([[np.median(turn) for turn in found] for found in turns])
    ratios = np.median(middle[1:] / np.maximum(middle[0], 1e-12), axis=1)
    return [1e6 * float(np.min(found)) for found in turns] + [float(ratio) for ratio in ratios]


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
        if max(times[: len(libraries)]) > 0:  # layers that are fused into others take no time of their own
            ratios = "".join(f"{ratio:10.3f}" for ratio in times[len(libraries) :])
            print(f"{name:24s}" + "".join(f"{value:10.1f}" for value in times[: len(libraries)]) + ratios)
    return None


if __name__ == "__main__":
    main()
