"""Exit-code gates: limits that turn a benchmark into a check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bitedge.cli.bench.report import speedups
from bitedge.cli.errors import CommandError


@dataclass(frozen=True)
class Gates:
    """What bitedge's rows must reach; a limit that is None is not checked."""

    max_p99_ms: float | None = None
    min_speedup: Mapping[str, float] | None = None
    min_top1: float | None = None

    def breaches(self, rows: Sequence[Mapping[str, Any]]) -> list[str]:
        """One sentence for every limit that is not kept; wrong answers and failures always count."""
        found = [
            f"{row['engine']}: the answer differs from the reference" for row in rows if row["status"] == "differs"
        ]
        found += [f"{row['engine']}: {row['reason']}" for row in rows if row["status"] == "failed"]
        ours = [row for row in rows if row["engine"].split()[0] == "bitedge" and row["ms"]]
        for row in ours:
            where = f"{row['engine']}, {row['threads']} threads, batch {row['batch']}"
            if self.max_p99_ms is not None and row["ms"]["p99"] > self.max_p99_ms:
                found.append(f"{where}: p99 is {row['ms']['p99']:.3f} ms, above --max-p99-ms {self.max_p99_ms:g}")
            if self.min_top1 is not None and (row.get("top1") is None or row["top1"] < self.min_top1):
                found.append(f"{where}: top-1 is {row.get('top1')}, below --min-top1 {self.min_top1:g}")
        for engine, wanted in (self.min_speedup or {}).items():
            found += _speedup_breaches(rows, engine, wanted)
        return found


def _speedup_breaches(rows: Sequence[Mapping[str, Any]], engine: str, wanted: float) -> list[str]:
    reached = [
        (row, faster) for row, faster in zip(rows, speedups(rows), strict=True) if row["engine"] == engine and faster
    ]
    if not reached:
        return [f"{engine}: was not measured, so --min-speedup {engine}={wanted:g} cannot be checked"]
    return [
        f"{engine}, {row['threads']} threads, batch {row['batch']}: speed-up is {faster:.2f}, below {wanted:g}"
        for row, faster in reached
        if faster < wanted
    ]


def parse_speedup(words: Sequence[str], engines: Sequence[str]) -> dict[str, float]:
    """Read `engine=x` pairs."""
    wanted = {}
    for word in words:
        engine, _, number = word.rpartition("=")
        try:
            wanted[engine] = float(number)
        except ValueError:
            raise CommandError(f"--min-speedup: expected engine=number, got {word}") from None
        if engine not in engines:
            raise CommandError(f"--min-speedup: there is no engine {engine!r}; the engines are {', '.join(engines)}")
    return wanted
