"""The formats that a network can be written in: one row and one writer module each."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bitedge.export.errors import ExportError
from bitedge.export.extras import needs
from bitedge.export.formats.bundle import Bundle

Writer = Callable[[Bundle, Path], Mapping[str, Any] | None]
"""Writes a file or a folder, and gives the figures that the report shows of it, if it has any."""


@dataclass(frozen=True)
class Format:
    """A format: its name, its file, the module whose `write(bundle, path)` makes it, and the extra that it needs."""

    name: str
    file_name: str
    module: str
    extra: str
    packages: tuple[str, ...]
    attribute: str = "write"
    by_default: bool = True
    """Written when no formats are named."""

    def needs(self) -> str:
        """Say which packages are missing and how to get them; empty if none is."""
        return needs(self.packages, self.extra)

    def writer(self) -> Writer:
        """Load the writer."""
        write: Writer = getattr(importlib.import_module(self.module), self.attribute)
        return write


_ORT = ("onnx", "onnxruntime")  # the second proves the file
_LCE = ("larq_compute_engine", "tensorflow")

FORMATS = (
    Format("gguf", "model.gguf", "bitedge.export.formats.gguf.writer", "train", ("gguf",)),
    Format("onnx", "model.onnx", "bitedge.export.formats.onnx.float32", "onnx", _ORT),
    Format("int8", "model.int8.onnx", "bitedge.export.formats.onnx.int8", "onnx", _ORT),
    Format(
        "tflite",
        "model.tflite",
        "bitedge.export.formats.tflite.writer",
        "tflite",
        ("larq_compute_engine", "tensorflow"),
    ),
    Format("c", "c", "bitedge.export.formats.c.writer", "train", (), by_default=False),
)


def choose(names: Sequence[str] | None) -> tuple[list[Format], dict[str, str]]:
    """Give the formats to write, and those that are skipped with the reason; None asks for the usual ones."""
    table = {row.name: row for row in FORMATS}
    unknown = [name for name in names or () if name not in table]
    if unknown:
        raise ExportError(f"there is no format {unknown[0]!r}; the formats are {', '.join(table)}")
    wanted = (
        [table[name] for name in dict.fromkeys(names)]
        if names is not None
        else [row for row in FORMATS if row.by_default]
    )
    if not wanted:
        raise ExportError(f"no format was asked for; the formats are {', '.join(table)}")
    skipped: dict[str, str] = {}
    for row in wanted:
        if reason := row.needs():
            if names is not None:
                raise ExportError(f"the format {row.name!r} {reason}")
            skipped[row.name] = reason
    return [row for row in wanted if row.name not in skipped], skipped
