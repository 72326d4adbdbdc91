"""Run networks in C on emulated microcontrollers: test vectors, memory, and instructions counted by a plugin of qemu.

    cd export && python -m boards.run DIR/c... [--boards m4,rv32] [--json FILE]

DIR/c is what `bitedge export --formats c` wrote. Every row is one board: the test vectors are run, and a difference
ends the command with 1. Instructions are counted, cycles are not.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from boards.boards import BOARDS, Board
from boards.build import HERE, BoardError, missing, run


@dataclass(frozen=True)
class Row:
    """One network on one board; sizes in bytes, `instructions` of one inference, `layers` of its parts."""

    board: str
    processor: str
    network: str
    right: int
    vectors: int
    flash: int
    stack: int
    arena: int
    arena_used: int
    instructions: int
    layers: dict[str, int]


@dataclass(frozen=True)
class Comparison:
    """A binary convolution of a network beside a plain int8 one of the same shape; None if that does not fit."""

    board: str
    layer: str
    macs: int
    binary: int
    int8: int | None


def network_row(board: Board, folder: Path, temporary: Path) -> Row:
    """Build and run a network; the second vector is the one that is counted."""
    sources = [HERE / "network.c", folder / "model.c", folder / "bitedge_mcu.c"]
    result = run(board, sources, temporary, [f"-I{folder}", "-include", str(HERE / "trace.h")])
    marks = result.marks[len(result.marks) // 2 :]
    layers = {name: after - before for name, before, after in zip(_layers(folder), marks, marks[1:], strict=False)}
    header = (folder / "model.h").read_text(encoding="utf-8")
    found = re.search(r"#define MODEL_ARENA_WORDS (\d+)", header)
    assert found is not None
    return Row(
        board=board.name,
        processor=board.processor,
        network=_name(folder),
        right=result.printed["vectors"] - result.printed["wrong"],
        vectors=result.printed["vectors"],
        flash=result.text + result.data,
        stack=result.printed["stack"],
        arena=4 * int(found[1]),
        arena_used=result.printed["arena"],
        instructions=marks[-1] - marks[0],
        layers=layers,
    )


def compare(board: Board, folder: Path, row: Row, temporary: Path) -> Comparison | None:
    """Count a plain int8 convolution of the shape of the last binary one that is 3x3 and padded; None if none is."""
    source = (folder / "model.c").read_text(encoding="utf-8")
    shapes = re.findall(r"bitedge_binary_conv2d_layer layer_(\d+) = \{\s*\{([\d, ]+)\}", source)
    found = [(int(index), [int(part) for part in text.split(",")]) for index, text in shapes]
    padded = [(index, shape) for index, shape in found if shape[6:12] == [3, 3, 1, 1, 1, 1]]
    if not padded:
        return None
    index, shape = padded[-1]
    height, width, channels, _, _, outputs = shape[:6]
    sizes = {"HEIGHT": height, "WIDTH": width, "CHANNELS": channels, "OUTPUTS": outputs, "KERNEL": 3}
    name = _layers(folder)[index]
    title = f"{name}: {height}x{width}x{channels} to {outputs}"
    try:
        result = run(
            board, [HERE / "int8.c"], temporary, ["-O3", *(f"-D{name}={size}" for name, size in sizes.items())]
        )
        int8 = result.marks[1] - result.marks[0]
    except BoardError as error:
        if "will not fit in region" not in str(error):
            raise
        int8 = None
    return Comparison(board.name, title, _macs(shape), row.layers[name], int8)


def _macs(shape: Sequence[int]) -> int:
    return shape[3] * shape[4] * shape[5] * shape[6] * shape[7] * shape[2] // shape[14]


def _layers(folder: Path) -> list[str]:
    """Give the title of every call in model_run, in order; each makes one value here."""
    source = (folder / "model.c").read_text(encoding="utf-8")
    body = source[source.index("void model_run(") :]
    return re.findall(r"^  /\* (.+) \*/$", body, re.MULTILINE)


def _name(folder: Path) -> str:
    first = (folder / "model.h").read_text(encoding="utf-8").splitlines()[0]
    return first.removeprefix("/* The network ").split(",")[0]


def table(rows: Sequence[Row]) -> str:
    """Lay the rows out in Markdown."""
    header = (
        "| network | processor | vectors | flash | arena | stack | instructions |\n|---|---|---|---:|---:|---:|---:|"
    )
    lines = [
        f"| {row.network} | {row.processor} | {row.right} of {row.vectors} | {row.flash:,} | {row.arena:,} "
        f"| {row.stack:,} | {row.instructions:,} |"
        for row in rows
    ]
    return "\n".join([header, *lines])


def comparison_table(rows: Sequence[Comparison]) -> str:
    """Lay the comparisons out in Markdown."""
    columns = ("layer", "board", "binary", "MACs per instruction", "int8, plain C", "ratio")
    lines = ["| " + " | ".join(columns) + " |", "|---|---|---:|---:|---:|---:|"]
    for row in rows:
        int8 = ("does not fit", "-") if row.int8 is None else (f"{row.int8:,}", f"{row.int8 / row.binary:.1f}")
        cells = (row.layer, row.board, f"{row.binary:,}", f"{row.macs / row.binary:.2f}", *int8)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(prog="boards.run", description=__doc__.splitlines()[0] if __doc__ else None)
    names = ",".join(board.name for board in BOARDS)
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="folders that bitedge export wrote: .../c")
    parser.add_argument("--boards", default=names, help=f"which of {names} (default: all)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there, layer by layer")
    args = parser.parse_args(arguments)
    chosen = [board for board in BOARDS if board.name in args.boards.split(",")]
    if unknown := set(args.boards.split(",")) - {board.name for board in BOARDS}:
        parser.error(f"there is no board {sorted(unknown)[0]!r}; the boards are {names}")
    rows: list[Row] = []
    comparisons: list[Comparison] = []
    for folder, board in ((folder, board) for folder in args.folders for board in chosen):
        if not (folder / "model.c").exists():
            parser.error(f"{folder} holds no model.c: expected a folder that bitedge export --formats c wrote")
        if lacking := missing(board):
            parser.error(f"{board.name} needs {', '.join(lacking)}: see docs/microcontrollers.md for the packages")
        try:
            with tempfile.TemporaryDirectory() as temporary:
                rows.append(network_row(board, folder.resolve(), Path(temporary)))
                if found := compare(board, folder.resolve(), rows[-1], Path(temporary)):
                    comparisons.append(found)
        except BoardError as error:
            sys.stderr.write(f"boards.run: {error}\n")
            return 1
    sys.stdout.write(table(rows) + "\n\n" + comparison_table(comparisons) + "\n")
    if args.json:
        document = {"networks": [asdict(row) for row in rows], "layers": [asdict(row) for row in comparisons]}
        args.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
