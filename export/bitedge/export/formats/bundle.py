"""What every writer gets: the network in both forms, and what is known about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bitedge.export.ir.graph import Graph
from bitedge.export.verify.golden import Golden


@dataclass(frozen=True, eq=False)
class Bundle:
    """A network ready to be written."""

    captured: Graph
    """As torch has it: for formats that bring their own fusion."""
    lowered: Graph
    """The nine operators of docs/format.md."""
    golden: Golden
    labels: tuple[str, ...] = ()
    preprocessing: Mapping[str, Any] | None = None
    training: Mapping[str, Any] | None = None
    max_flash: int | None = None
    """Largest number of bytes of constants that the format `c` may have."""
    max_ram: int | None = None
    """Largest number of bytes of memory that the format `c` may take."""

    @property
    def name(self) -> str:
        """Name of the network."""
        return self.lowered.name
