"""The writer of the format `c`: a folder, complete or not there at all."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bitedge.export.errors import ExportError
from bitedge.export.formats.bundle import Bundle
from bitedge.export.formats.c.network import Cost, arduino_files, generate

_EPOCH = (1980, 1, 1, 0, 0, 0)


def write(bundle: Bundle, path: Path) -> Mapping[str, Any]:
    """Write the folder under a temporary name first, then put it in the place of an earlier one; give the cost."""
    files, cost = generate(bundle)
    _check(bundle, cost)
    temporary, old = (path.with_name(f".{path.name}.{os.getpid()}.{word}") for word in ("tmp", "old"))
    try:
        temporary.mkdir(parents=True)
        for name, content in files.items():
            (temporary / name).write_text(content, encoding="utf-8")
        _zip(temporary / "arduino.zip", "bitedge_model", arduino_files(bundle, files))
        if path.exists():
            path.rename(old)
        temporary.rename(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
    return cost.as_dict()


def _check(bundle: Bundle, cost: Cost) -> None:
    """Refuse a network that takes more than it may."""
    if bundle.max_flash is not None and cost.flash > bundle.max_flash:
        raise ExportError(
            f"the constants take {cost.flash:,} bytes of flash, allowed are {bundle.max_flash:,}; "
            f"the largest layer is {cost.largest_layer!r} with {cost.largest_bytes:,}"
        )
    if bundle.max_ram is not None and cost.ram > bundle.max_ram:
        raise ExportError(
            f"arena, image and answer take {cost.ram:,} bytes of RAM, allowed are {bundle.max_ram:,}; "
            f"the arena of {cost.arena:,} is largest at layer {cost.peak_layer!r}"
        )


def _zip(path: Path, folder: str, files: Mapping[str, str]) -> None:
    """Write an archive; the same files give the same bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(f"{folder}/{name}", _EPOCH), content.encode(), zipfile.ZIP_DEFLATED)
