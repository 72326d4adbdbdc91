"""The log of a run: one row per epoch, as CSV and as JSON lines.

A resumed run repeats nothing: rows after the checkpoint are cut off before the first new one is written.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bitedge.train.engine.checkpoint import write_text

Row = Mapping[str, Any]


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read `metrics.jsonl`; a last line that a kill cut short is left out."""
    rows: list[dict[str, Any]] = []
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:
                break
    return rows


class MetricsLog:
    """Keeps the rows of a run and its two files in step."""

    def __init__(self, folder: Path, *, keep_epochs: int = 0) -> None:
        self.folder = folder
        self.rows = [row for row in read_rows(folder / "metrics.jsonl") if row["epoch"] <= keep_epochs]
        self._write()

    def add(self, row: Row) -> None:
        """Append one epoch; scalars go to every file, nested values (per layer) to the JSON lines only."""
        self.rows.append(dict(row))
        self._write()

    def _write(self) -> None:
        write_text(self.folder / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in self.rows))
        columns: dict[str, None] = {}
        for row in self.rows:
            columns |= {name: None for name, value in row.items() if not isinstance(value, Mapping)}
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, list(columns), extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        write_text(self.folder / "metrics.csv", buffer.getvalue())
