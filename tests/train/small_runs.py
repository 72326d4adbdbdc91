"""A run that takes seconds, for the tests of the trainer."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

SMALL = (
    "epochs=2",
    "batch_size=40",
    "data.limit=200",
    "network.arguments.width=4",
    "network.arguments.dense=16",
    "execution.threads=1",
    "execution.telemetry_steps=2",
)
"""Overrides that make the recipe `digits` a matter of a second: 5 steps per epoch."""


def environment() -> dict[str, str]:
    """The environment of a subprocess that imports the rooms from this checkout and keeps to one thread."""
    rooms = [str(ROOT / room) for room in ("train", "export", "runtime", "serve", "cli")]
    paths = [*rooms, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
