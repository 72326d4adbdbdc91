"""bfloat16 on a virtual machine that announces AMX without describing it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bitedge.train.onednn import VARIABLE, avoid_hidden_tiles

CPU = "model name\t: X\ncpuid level\t: {level}\nflags\t\t: fpu avx512_fp16 {flags}\n"


@pytest.mark.parametrize(
    ("level", "flags", "limited"), [(28, "amx_bf16 amx_tile", True), (31, "amx_tile", False), (28, "avx2", False)]
)
def test_only_hidden_tiles_are_avoided(
    level: int, flags: str, limited: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    (tmp_path / "cpuinfo").write_text(CPU.format(level=level, flags=flags))
    avoid_hidden_tiles(tmp_path / "cpuinfo")
    assert os.environ.get(VARIABLE) == ("AVX512_CORE_FP16" if limited else None)


def test_the_users_choice_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "AVX2")
    (tmp_path / "cpuinfo").write_text(CPU.format(level=28, flags="amx_tile"))
    avoid_hidden_tiles(tmp_path / "cpuinfo")
    assert os.environ[VARIABLE] == "AVX2"


def test_other_systems_have_no_such_file(tmp_path: Path) -> None:
    avoid_hidden_tiles(tmp_path / "missing")
