"""`bitedge bench kernels`: every kernel of the core over the networks' layers, next to the bare loop and OpenVINO.

The core's own kernels are timed by the native tool, one layer at a time. A peer cannot be called that finely, so the
comparison with OpenVINO is of a stack of four layers each (`layers.py`), the two in turns, answers compared.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bitedge.cli.bench import native
from bitedge.cli.bench.engines import ENGINES, LAYER_ENGINES
from bitedge.cli.bench.host import describe
from bitedge.cli.bench.layers import DEPTH, STACKS, Stack, write_arrays, write_packed
from bitedge.cli.bench.runner import Job, Settings, measure_rows, reference_answer
from bitedge.cli.errors import CommandError
from bitedge.cli.output import emit, note, table, write_atomically

HEADER = ("layer", "engine", "kernel", "status", "us", "GMAC/s", "bare loop", "share %")
TURNS = 10  # of a kernel in each round: a layer takes microseconds
Row = dict[str, Any]


def run_kernels(args: argparse.Namespace, say: Callable[[str], None]) -> int:
    """Measure, report, and fail when a peer gives another answer."""
    if args.rounds < 1:
        raise CommandError(f"--rounds: expected at least 1, got {args.rounds}")
    say("measuring the core's kernels")
    words = ["--kernels", args.kernels] if args.kernels else []
    measured = native.ask("kernels", "--json", "--rounds", str(TURNS * args.rounds), *words)["rows"]
    limits = {row["layer"]: row["limit_gmacs_per_s"] for row in measured}
    rows = [{**row, "status": "ok", "agrees": None, "reason": None} for row in measured]
    for stack in STACKS:
        say(f"{stack.layer}: measuring a stack of {DEPTH} layers against OpenVINO")
        rows += peer_rows(stack, limits[stack.layer], args.rounds)
    document = {"host": describe(), "command": f"bitedge bench kernels --rounds {args.rounds}", "rows": rows}
    emit(args, document, text(document))
    if args.markdown:
        write_atomically(args.markdown, markdown(document))
    wrong = [row for row in rows if row["status"] in ("differs", "failed")]
    for row in wrong:
        note(f"bitedge bench: {row['layer']}, {row['engine']}: {row['reason'] or 'the answer differs'}")
    return 1 if wrong else 0


def peer_rows(stack: Stack, limit: float | None, rounds: int) -> list[Row]:
    """One stack of layers by the core and by every peer for single layers, in turns."""
    if find_spec("gguf") is None:  # an installation that only runs models cannot write the stack
        gone: Row = {"ms": None, "status": "missing", "agrees": None, "reason": "pip install 'bitedge[train,bench]'"}
        return [_row(stack, gone | {"engine": engine.name}, limit) for engine in LAYER_ENGINES]
    with tempfile.TemporaryDirectory(prefix="bitedge-bench-") as name:
        folder = Path(name)
        packed, arrays = folder / "model.gguf", folder / "layers.npz"
        write_packed(stack, packed)
        write_arrays(stack, arrays)
        jobs = [Job(ENGINES[0], packed, 1, 1), *(Job(engine, arrays, 1, 1) for engine in LAYER_ENGINES)]
        images = stack.images()
        measured = measure_rows(jobs, images, reference_answer(packed, images), Settings(rounds, 0.02))
    return [_row(stack, row, limit) for row in measured]


def _row(stack: Stack, row: Mapping[str, Any], limit: float | None) -> Row:
    """A row of the runner in this report's columns; microseconds are of the best call, as the native tool has them."""
    made: Row = {"layer": f"{stack.layer} x{DEPTH}", "engine": row["engine"], "kernel": None}
    rate = stack.macs / row["ms"]["min"] / 1e6 if row["ms"] else None
    made |= {"us": 1e3 * row["ms"]["min"] if row["ms"] else None, "gmacs_per_s": rate, "limit_gmacs_per_s": limit}
    made |= {"share": rate / limit if rate and limit else None}
    return made | {"status": row["status"], "agrees": row["agrees"], "reason": row.get("reason")}


def cells(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """The rows as text."""

    def number(value: float | None, digits: int = 0) -> str:
        return "-" if value is None else f"{value:.{digits}f}"

    return [
        (
            row["layer"],
            row["engine"],
            row["kernel"] or "-",
            row["status"] if row["agrees"] is None else f"{row['status']}, same answer",
            number(row["us"], 1),
            number(row["gmacs_per_s"]),
            number(row["limit_gmacs_per_s"]),
            number(100 * row["share"] if row["share"] is not None else None),
        )
        for row in rows
    ]


EXPLANATION = (
    f"x{DEPTH}: a stack of sign, convolution, scale and bias, floats in and out; bare loop: xor, popcount and add on "
    "data that is laid out already, measured in the same run; share: of that limit"
)


def text(document: Mapping[str, Any]) -> str:
    """The report for a terminal, with the install line of a peer that is not there."""
    about, rows = document["host"], document["rows"]
    lines = [f"one thread on {about['cpu']}, {about['system']}", "", table(HEADER, cells(rows)), "", EXPLANATION]
    reasons = {f"{row['engine']}: {row['status']}: {row['reason']}": None for row in rows if row["reason"]}
    return "\n".join([*lines, *reasons])


def markdown(document: Mapping[str, Any]) -> str:
    """The report as Markdown."""
    about, rows = document["host"], document["rows"]
    lines = ["### Kernels", "", f"`{document['command']}`, one thread on {about['cpu']}, {about['system']}", ""]
    lines += ["| " + " | ".join(HEADER) + " |", "|" + "---|" * len(HEADER)]
    lines += ["| " + " | ".join(row) + " |" for row in cells(rows)]
    return "\n".join([*lines, "", EXPLANATION + ".", ""])
