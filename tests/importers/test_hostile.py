"""Hostile files: cut and altered ones are read or refused in one sentence, never with another error.

200 mutations of each kind, or BITEDGE_MUTATIONS of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.importers.lce_files import draw, write
from tests.importers.onnx_forms import qonnx

from bitedge.export import ExportError

MUTATIONS = int(os.environ.get("BITEDGE_MUTATIONS", "200"))
Reader = Callable[[Path], object]


def mutate(content: bytes, rng: np.random.Generator) -> bytes:
    """Cut a file, or alter, move or repeat some of its bytes."""
    data = bytearray(content)
    for _ in range(int(rng.integers(1, 6))):
        place = int(rng.integers(0, len(data)))
        kind = int(rng.integers(0, 5))
        if kind == 0 and len(data) > 32:
            del data[place:]
        elif kind == 1:
            data[place] ^= 1 << int(rng.integers(0, 8))
        elif kind == 2:
            data[place : place + 4] = int(rng.integers(0, 2**32)).to_bytes(4, "little")
        elif kind == 3:
            data[place : place + 4] = int(rng.choice([0, 2**31 - 1, 2**32 - 1, 2**16])).to_bytes(4, "little")
        else:
            data[place:place] = data[place : place + int(rng.integers(1, 64))]
        if len(data) < 2:
            break
    return bytes(data)


def _attack(content: bytes, path: Path, read: Reader) -> tuple[int, int]:
    """Give how many mutations were read and how many refused."""
    rng = np.random.default_rng(0)
    messages: list[str] = []
    for _ in range(MUTATIONS):
        path.write_bytes(mutate(content, rng))
        try:
            read(path)
        except ExportError as error:
            messages.append(str(error))
    assert all(message and "\n" not in message for message in messages)
    return MUTATIONS - len(messages), len(messages)


@pytest.mark.timeout(7200)
def test_altered_tflite_files_are_read_or_refused(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    from bitedge.export.importers.tflite.flatbuffer import load
    from bitedge.export.importers.tflite.reader import read

    write(draw(1), tmp_path / "layer.tflite")
    content = (tmp_path / "layer.tflite").read_bytes()
    load(tmp_path / "layer.tflite")
    kept, refused = _attack(content, tmp_path / "altered.tflite", read)
    assert kept + refused == MUTATIONS
    assert refused > MUTATIONS // 4


@pytest.mark.timeout(7200)
def test_altered_onnx_files_are_read_or_refused(tmp_path: Path) -> None:
    from bitedge.export.importers.onnx.reader import read

    qonnx(tmp_path / "network.onnx")
    kept, refused = _attack((tmp_path / "network.onnx").read_bytes(), tmp_path / "altered.onnx", read)
    assert kept + refused == MUTATIONS
    assert refused > MUTATIONS // 4
