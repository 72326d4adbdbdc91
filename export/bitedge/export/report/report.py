"""The conversion report: what became of every layer, and what it saved. Nothing stays float in silence."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bitedge.export.report.layers import LayerRow
from bitedge.export.report.tables import markdown_table, text_table

REPORT = "report.json"


@dataclass(frozen=True)
class Report:
    """The result of an export."""

    network: str
    input: Mapping[str, Any]
    outputs: int
    layers: tuple[LayerRow, ...]
    sizes: Mapping[str, int]
    skipped: Mapping[str, str] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What a format tells of itself, by its name; `summary` is a line of it."""
    proof: Mapping[str, Any] = field(default_factory=dict)
    """How the files compare with torch: inputs, seconds, and per file the largest error and the bits."""
    signs_at_zero: Mapping[str, int] = field(default_factory=dict)
    """Signs that are not +1 at 0 in torch, and what they are there."""
    half: Mapping[str, Any] | None = None
    source: Mapping[str, Any] | None = None

    @property
    def bytes_before(self) -> int:
        """Size of all parameters as float32."""
        return sum(row.bytes_before for row in self.layers)

    @property
    def bytes_after(self) -> int:
        """Size of all tensors as they are packed."""
        return sum(row.bytes_after for row in self.layers)

    @property
    def compression(self) -> float:
        """How many times smaller the packed parameters are."""
        return self.bytes_before / max(self.bytes_after, 1)

    def totals(self) -> dict[str, Any]:
        """Give the sums over all layers."""
        macs = {kind: sum(row.macs for row in self.layers if row.precision == kind) for kind in ("binary", "float")}
        return {
            "parameters": sum(row.parameters for row in self.layers),
            "bytes_before": self.bytes_before,
            "bytes_after": self.bytes_after,
            "compression": round(self.compression, 2),
            "macs_binary": macs["binary"],
            "macs_float": macs["float"],
        }

    def stayed_float(self) -> list[LayerRow]:
        """Give the layers that were trained binary and are not binary in the packed network."""
        return [row for row in self.layers if row.trained_binary and row.precision != "binary"]

    def as_dict(self) -> dict[str, Any]:
        """Give the whole report as plain data."""
        return {
            "network": self.network,
            "input": dict(self.input),
            "outputs": self.outputs,
            "layers": [asdict(row) for row in self.layers],
            "totals": self.totals(),
            "files": dict(self.sizes),
            "skipped": dict(self.skipped),
            "failures": dict(self.failures),
            "figures": {name: dict(found) for name, found in self.figures.items()},
            "proof": dict(self.proof),
            "signs_at_zero": dict(self.signs_at_zero),
            "half": None if self.half is None else dict(self.half),
            "source": None if self.source is None else dict(self.source),
        }

    def text(self) -> str:
        """Lay the report out for a terminal."""
        return "\n\n".join([text_table(HEADER, self._rows()), "\n".join(self._notes())])

    def markdown(self) -> str:
        """Write the report as a Markdown page."""
        notes = [f"- {line}" for line in self._notes()]
        return "\n\n".join([f"# {self.network}", markdown_table(HEADER, self._rows()), "\n".join(notes)]) + "\n"

    def save(self, folder: Path) -> None:
        """Write report.json and report.md."""
        for name, content in ((REPORT, json.dumps(self.as_dict(), indent=2) + "\n"), ("report.md", self.markdown())):
            temporary = folder / f".{name}.{os.getpid()}.tmp"
            temporary.write_text(content, encoding="utf-8")
            temporary.replace(folder / name)

    def _rows(self) -> list[list[object]]:
        rows: list[list[object]] = []
        for row in self.layers:
            layer = " + ".join((row.layer, *row.absorbed))
            shape = "x".join(map(str, row.shape))
            cost = [row.parameters or "-", row.bytes_before or "-", row.bytes_after or "-", row.macs or "-"]
            rows.append([layer, row.operator, row.epilogue, shape, row.precision, *cost, row.why])
        return rows

    def _notes(self) -> list[str]:
        totals = self.totals()
        macs = totals["macs_binary"] + totals["macs_float"]
        share = 100 * totals["macs_binary"] / max(macs, 1)
        lines = [
            f"{totals['parameters']:,} parameters: {self.bytes_before:,} bytes as float32, {self.bytes_after:,} packed "
            f"({self.compression:.1f} times smaller)",
            f"{macs:,} multiply-accumulates per image, {share:.1f} % binary",
            *(f"{name}: {size:,} bytes ({size / 2**20:.2f} MB)" for name, size in self.sizes.items()),
            *(f"{name}: {found['summary']}" for name, found in self.figures.items()),
            *(f"{name} skipped: {reason}" for name, reason in self.skipped.items()),
            *(f"{name} FAILED: {reason}" for name, reason in self.failures.items()),
            *(f"trained binary, but stays float: {row.layer}: {row.why}" for row in self.stayed_float()),
        ]
        lines += self._proof_notes()
        if self.half is not None:
            lines.append(str(self.half["summary"]))
        return lines

    def _reference(self) -> str:
        """What the files were compared with: torch, or the engine that an imported network comes from."""
        return "torch" if self.source is None else str(self.source.get("engine", "torch"))

    def _proof_notes(self) -> list[str]:
        lines = []
        if self.proof:
            done, planned = self.proof["images"], self.proof["of"]
            early = "" if done == planned else f" (of {planned}: the time limit ended it)"
            lines.append(f"compared with {self._reference()} on {done} inputs{early} in {self.proof['seconds']:.1f} s")
            for name, row in self.proof["files"].items():
                if "skipped" in row:
                    lines.append(f"{name}: not compared: {row['skipped']}")
                    continue
                bits = f", {row['bits_differing']:,} of {row['bits']:,} bits differ" if row["bits"] else ""
                lines.append(f"{name}: largest error {row['logit_error']:.1e}{bits}")
        for name, value in self.signs_at_zero.items():
            lines.append(
                f"{name}: {self._reference()}'s sign of exactly 0 is {value}, every engine's is 1; "
                "no input shows a 0 there"
            )
        return lines


HEADER = (
    "layer",
    "operator",
    "epilogue",
    "output",
    "precision",
    "params",
    "bytes before",
    "bytes after",
    "MACs",
    "why",
)
