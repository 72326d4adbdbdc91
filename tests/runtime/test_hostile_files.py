"""Hostile files: every one is refused, with the status and the message that its defect has."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tests.runtime.hostile_containers import CONTAINERS, Hostile
from tests.runtime.hostile_graphs import GRAPHS
from tests.runtime.hostile_steps import VERSION_2
from tests.runtime.packed_file import small_model

from bitedge.runtime import Model, RuntimeFault
from bitedge.runtime.errors import Status

CORPUS = CONTAINERS + GRAPHS + VERSION_2
SHARED = (
    "does not start with 'GGUF'",
    "is not 64 lower-case hexadecimal",
    "eps is not a positive number",
    "size or offset that overflows",
    "not a JSON object",
    "not finite",
)
"""Messages of rules that several files break."""


def refusal(source: bytes | Path) -> RuntimeFault:
    with pytest.raises(RuntimeFault) as caught:
        Model(source)
    return caught.value


@pytest.mark.parametrize("hostile", CORPUS, ids=lambda hostile: hostile.name)
def test_every_hostile_file_is_refused_by_its_own_message(hostile: Hostile) -> None:
    fault = refusal(hostile.make())
    assert hostile.message in str(fault)
    assert fault.status is hostile.status
    assert "\n" not in str(fault)


def test_no_two_defects_share_a_message() -> None:
    names = Counter(hostile.name for hostile in CORPUS)
    assert not [name for name, count in names.items() if count > 1]
    messages = Counter(str(refusal(hostile.make())) for hostile in CORPUS)
    repeated = [message for message, count in messages.items() if count > 1]
    assert not [message for message in repeated if not any(text in message for text in SHARED)]


def test_the_message_starts_with_the_path(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    data = small_model().build()
    path.write_bytes(data[:-40])
    message = f"{path}: truncated: tensor 'node.3.weight' needs bytes up to {len(data)}, the file has {len(data) - 40}"
    assert str(refusal(path)) == message


def test_a_file_cut_at_any_byte_is_refused() -> None:
    data = small_model().build()
    for size in range(len(data)):
        fault = refusal(data[:size])
        assert fault.status in (Status.FORMAT, Status.CHECKSUM)
        assert size < 4 or "truncated" in str(fault) or "damaged" in str(fault), f"cut at {size}: {fault}"


def test_a_file_with_any_bit_flipped_is_refused() -> None:
    data = np.frombuffer(small_model().build(), np.uint8)
    for position in range(len(data)):
        damaged = data.copy()
        damaged[position] ^= 1 << position % 8
        assert refusal(damaged.tobytes()).status in (Status.FORMAT, Status.CHECKSUM, Status.VERSION)


def test_a_longer_file_is_refused() -> None:
    assert refusal(small_model().build() + b"\0").status is Status.CHECKSUM


def test_a_folder_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    assert str(refusal(tmp_path)) == f"{tmp_path}: cannot open: not a regular file"
    assert refusal(tmp_path / "none.gguf").status is Status.IO
    (tmp_path / "empty.gguf").touch()
    assert str(refusal(tmp_path / "empty.gguf")) == f"{tmp_path / 'empty.gguf'}: empty file"
    with pytest.raises(RuntimeFault, match="cannot hold a NUL"):
        Model("a\0b")
