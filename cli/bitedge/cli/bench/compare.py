"""`bitedge bench compare A.json B.json`: what changed between two reports, beyond their noise."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bitedge.cli.errors import CommandError
from bitedge.cli.output import table

Key = tuple[str, str, int, int]


def read(path: Path) -> dict[Key, Mapping[str, Any]]:
    """Read a report written by `bitedge bench --json` and index its measured rows."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return {
            (row["net"], row["engine"], row["threads"], row["batch"]): row["ms"]
            for row in document["rows"]
            if row["ms"]
        }
    except (ValueError, KeyError, TypeError) as error:
        raise CommandError(f"{path}: not a report of bitedge bench --json ({type(error).__name__}: {error})") from None


def judge(before: Mapping[str, float], after: Mapping[str, float]) -> tuple[float, float, str]:
    """The ratio of the medians, the noise of the two runs, and a verdict.

    Noise only ever adds time, so the spread from the fastest call to the median is a fair measure of it; a change
    counts when the medians and the minima moved the same way, both by more than the larger spread.
    """
    ratio, floor = after["p50"] / before["p50"], after["min"] / before["min"]
    noise = max(run["p50"] / run["min"] - 1 for run in (before, after))
    if ratio > 1 + noise and floor > 1 + noise / 2:
        verdict = "slower"
    elif ratio < 1 / (1 + noise) and floor < 1 / (1 + noise / 2):
        verdict = "faster"
    else:
        verdict = "same within noise"
    return ratio, noise, verdict


def compare(first: Path, second: Path) -> tuple[dict[str, Any], str]:
    """Compare two reports; returns the data and the table."""
    before, after = read(first), read(second)
    common = [key for key in before if key in after]
    if not common:
        raise CommandError(f"{first} and {second} have no measured row in common (same net, engine, threads and batch)")
    rows = []
    for key in common:
        ratio, noise, verdict = judge(before[key], after[key])
        rows.append((*key, before[key]["p50"], after[key]["p50"], ratio, noise, verdict))
    names = ("net", "engine", "threads", "batch", "before_ms", "after_ms", "ratio", "noise", "verdict")
    cells = [
        (*row[:4], f"{row[4]:.3f}", f"{row[5]:.3f}", f"{row[6]:.3f}", f"{100 * row[7]:.0f} %", row[8]) for row in rows
    ]
    header = ("net", "engine", "threads", "batch", "ms before", "ms after", "ratio", "noise", "verdict")
    return {"rows": [dict(zip(names, row, strict=True)) for row in rows]}, table(header, cells)
