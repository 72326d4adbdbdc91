"""The formats that a network can be written in: one row and one writer module each."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bitedge.export.bundle import Bundle
from bitedge.export.errors import ExportError

Writer = Callable[[Bundle, Path], None]


@dataclass(frozen=True)
class Format:
    """A format: its name, its file, the module whose `write(bundle, path)` makes it, and the extra that it needs."""

    name: str
    file_name: str
    module: str
    extra: str
    packages: tuple[str, ...]
    attribute: str = "write"

    def missing(self) -> tuple[str, ...]:
        """Give the packages that are not installed."""
        return tuple(package for package in self.packages if importlib.util.find_spec(package) is None)

    def writer(self) -> Writer:
        """Load the writer."""
        write: Writer = getattr(importlib.import_module(self.module), self.attribute)
        return write


FORMATS = (Format("gguf", "model.gguf", "bitedge.export.packed", "train", ("gguf",)),)


def choose(names: Sequence[str] | None) -> tuple[list[Format], dict[str, str]]:
    """Give the formats to write, and those that are skipped with the reason; None asks for all that are installed."""
    table = {row.name: row for row in FORMATS}
    unknown = [name for name in names or () if name not in table]
    if unknown:
        raise ExportError(f"there is no format {unknown[0]!r}; the formats are {', '.join(table)}")
    wanted = [table[name] for name in dict.fromkeys(names)] if names is not None else list(FORMATS)
    if not wanted:
        raise ExportError(f"no format was asked for; the formats are {', '.join(table)}")
    skipped: dict[str, str] = {}
    for row in wanted:
        if row.missing():
            needs = f"needs {', '.join(row.missing())}: pip install 'bitedge[{row.extra}]'"
            if names is not None:
                raise ExportError(f"the format {row.name!r} {needs}")
            skipped[row.name] = needs
    return [row for row in wanted if row.name not in skipped], skipped
