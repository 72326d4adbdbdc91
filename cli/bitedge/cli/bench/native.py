"""The native tool `bitedge-bench`, which comes with the wheel: where it is, and what it says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from bitedge.cli.errors import CommandError

NAME = "bitedge-bench"
VARIABLE = "BITEDGE_BENCH"


def find() -> Path:
    """The file that BITEDGE_BENCH names, or else the command that was installed beside this Python, or on the path."""
    forced = os.environ.get(VARIABLE)
    if forced:
        if not Path(forced).is_file():
            raise CommandError(f"{VARIABLE} names {forced}, which is not a file")
        return Path(forced)
    beside = Path(sysconfig.get_path("scripts")) / NAME
    found = beside if beside.is_file() else shutil.which(NAME)
    if found is None:
        raise CommandError(f"{NAME} was not found in {beside.parent}: install the package, or set {VARIABLE}")
    return Path(found)


def ask(*words: str) -> dict[str, Any]:
    """Run the tool and read its JSON; what it refuses is refused in its own words."""
    done = subprocess.run([str(find()), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"no message, exit code {done.returncode}"]
        raise CommandError(lines[-1].removeprefix(f"{NAME}: "))
    document: dict[str, Any] = json.loads(done.stdout)
    return document
