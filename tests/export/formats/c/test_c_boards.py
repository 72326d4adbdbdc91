"""Networks in C on emulated Cortex-M and RISC-V boards: test vectors, memory, instructions."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.export.formats.c.networks import V2_STEPS, bundle_of, float_graph
from tests.export.padded_graphs import WINDOWS, padded_graph

from bitedge.export import export_run
from bitedge.export.formats.c.writer import write

ROOT = Path(__file__).resolve().parents[4]
ARM = ("arm-none-eabi-gcc", "qemu-system-arm")
RISCV = ("riscv64-unknown-elf-gcc", "qemu-system-riscv32")
PACKAGES = (
    "gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm "
    "gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf qemu-system-misc"
)
MOST = {"m0": 23_000_000, "m3": 16_000_000, "m4": 16_000_000, "m7": 16_000_000, "m55": 8_500_000}
MOST |= {"rv32": 17_000_000, "rv32-zbb": 9_500_000}
"""Instructions that one inference of the digits network may take: a slower inner loop is noticed."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folders(digits_run: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """An integer network, one with floats that are summed, and one with groups and padding of -1."""
    base = tmp_path_factory.mktemp("boards")
    assert export_run(digits_run, base, formats=["c"]).failures == {}
    write(bundle_of(float_graph(*V2_STEPS["gate"])), base / "floats")
    write(bundle_of(padded_graph(WINDOWS["groups"], -1, threshold=False, channels=40)), base / "groups")
    return [base / "c", base / "floats", base / "groups"]


@pytest.mark.parametrize("board", MOST)
def test_the_vectors_are_right_on_a_board(board: str, folders: list[Path], tmp_path: Path) -> None:
    tools = RISCV if board.startswith("rv32") else ARM
    if missing := [tool for tool in tools if shutil.which(tool) is None]:
        reason = f"needs {', '.join(missing)}: apt-get install {PACKAGES}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "boards.run", *map(str, folders), "--boards", board, "--json", str(report)]
    done = subprocess.run(command, cwd=ROOT / "export", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(report.read_text(encoding="utf-8"))
    for row in document["networks"]:
        assert row["right"] == row["vectors"] == 2
        assert row["arena_used"] <= row["arena"]
        assert row["stack"] <= 1024
    digits = document["networks"][0]
    assert digits["arena_used"] > 0.9 * digits["arena"]
    assert digits["instructions"] < MOST[board]
    assert sum(digits["layers"].values()) > 0.99 * digits["instructions"]
    (compared,) = [row for row in document["layers"] if row["layer"].startswith("conv6")]
    assert compared["int8"] > 2 * compared["binary"]


def test_the_network_of_the_documentation_fits_256_kb(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "boards.cifar10", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT / "export", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    cost = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["figures"]["c"]
    page = (ROOT / "docs" / "microcontrollers.md").read_text(encoding="utf-8")
    assert f"| CIFAR-10 | Cortex-M4 | 195,064 | {cost['arena']:,} |" in page
    assert f"{cost['macs'] / 1e6:.1f} million MACs" in page
    assert cost["flash"] < 195_064


def test_bad_arguments(tmp_path: Path) -> None:
    for words, message in (
        ([str(tmp_path)], "holds no model.c"),
        ([str(tmp_path), "--boards", "z80"], "no board 'z80'"),
    ):
        command = [sys.executable, "-m", "boards.run", *words]
        done = subprocess.run(command, cwd=ROOT / "export", capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert message in done.stderr
