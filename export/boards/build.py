"""Build a program for a board, run it in qemu, and count its instructions."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from boards.boards import Board

HERE = Path(__file__).parent
FLAGS = ("-O2", "-std=c99", "-Wall", "-Wextra", "-Werror", "-ffunction-sections", "-fdata-sections")


class BoardError(RuntimeError):
    """A program could not be built, or did not end well."""


@dataclass(frozen=True)
class Result:
    """What a program printed, the counts at its marks, and its sections' sizes in bytes."""

    printed: dict[str, int]
    marks: list[int]
    text: int
    data: int


def missing(board: Board) -> list[str]:
    """Give the programs that a board needs and that are not installed."""
    return [tool for tool in (*board.tools, "gcc") if shutil.which(tool) is None]


def plugin(folder: Path) -> Path:
    """Build the counting plugin."""
    library = folder / "libcount.so"
    if not library.exists():
        _run(["gcc", "-O2", "-shared", "-fPIC", "-o", str(library), str(HERE / "count.c")])
    return library


def run(board: Board, sources: Sequence[Path], folder: Path, flags: Sequence[str] = ()) -> Result:
    """Build sources with the board's start, run the program, and read what it left."""
    program = build(board, sources, folder, flags)
    counts = folder / "counts.txt"
    mark = _symbols(board, program)["board_mark"]
    command = [board.emulator, *board.machine, "-nographic", "-monitor", "none", "-serial", "none"]
    command += ["-semihosting-config", "enable=on,target=native", "-kernel", str(program)]
    command += ["-plugin", f"{plugin(folder)},mark={mark:#x},out={counts}"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, stdin=subprocess.DEVNULL)
    output = ended.stdout + ended.stderr
    if ended.returncode != 0:
        raise BoardError(f"{board.name}: ended with {ended.returncode}: {output.strip()}")
    printed = {name: int(number) for name, number in (line.split() for line in output.splitlines() if line)}
    marks = [int(line) for line in counts.read_text(encoding="utf-8").split()]
    text, data = _sizes(board, program)
    return Result(printed, marks, text, data)


def build(board: Board, sources: Sequence[Path], folder: Path, flags: Sequence[str]) -> Path:
    """Compile and link; give the program."""
    script, program = folder / "memory.ld", folder / "program.elf"
    places = {"FLASH": board.flash, "RAM": board.ram}
    text = (HERE / "memory.ld.in").read_text(encoding="utf-8")
    for name, (origin, size) in places.items():
        text = text.replace(f"@{name}@", f"{origin:#x}").replace(f"@{name}_SIZE@", size)
    script.write_text(text, encoding="utf-8")
    objects = []
    for source in (HERE / board.start, HERE / "board.c", *sources):
        objects.append(str(folder / f"{source.stem}.o"))
        options = [*board.flags, *FLAGS, f"-I{HERE}", *flags]
        _run([f"{board.prefix}gcc", *options, "-c", "-o", objects[-1], str(source)])
    link = [flag.replace("_zbb", "") for flag in board.flags]  # the libraries are those without it
    options = [*link, "-nostartfiles", f"-T{script}", "-Wl,--gc-sections"]
    _run([f"{board.prefix}gcc", *options, "-o", str(program), *objects])
    return program


def _symbols(board: Board, program: Path) -> dict[str, int]:
    lines = _run([f"{board.prefix}nm", str(program)]).splitlines()
    return {name: int(address, 16) for address, _, name in (line.split() for line in lines if line[:1] != " ")}


def _sizes(board: Board, program: Path) -> tuple[int, int]:
    text, data, *_ = _run([f"{board.prefix}size", str(program)]).splitlines()[1].split()
    return int(text), int(data)


def _run(command: Sequence[str]) -> str:
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if ended.returncode != 0:
        raise BoardError(f"{' '.join(command)}\n{ended.stderr.strip()}")
    return ended.stdout
