"""The C++ core as an engine of verification."""

from __future__ import annotations

from pathlib import Path

from bitedge.export.verify.engines.engines import Session
from bitedge.runtime import Model


def open_session(path: Path) -> Session:
    """Open a packed file, and hold it to its golden vectors first."""
    model = Model(path)
    model.check()
    return model
