"""What a verb says: text for a person, or one JSON document for a program."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def emit(args: argparse.Namespace, data: Mapping[str, Any], text: str) -> None:
    """Print `text`; under `--json` print `data` instead, and under `--json FILE` print the text and write the file."""
    if args.json is None:
        print(text)
    elif args.json == "-":
        print(json.dumps(data, indent=2))
    else:
        write_atomically(Path(args.json), json.dumps(data, indent=2) + "\n")
        print(text)


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old text or the new, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Lay out rows under a header; columns of numbers are set flush right."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(text) for text in column) for column in zip(header, *cells, strict=True)]
    numeric = [all(_is_number(row[i]) for row in cells) for i in range(len(header))]

    def line(row: Sequence[str]) -> str:
        padded = (
            cell.rjust(w) if right else cell.ljust(w) for cell, w, right in zip(row, widths, numeric, strict=True)
        )
        return "  ".join(padded).rstrip()

    return "\n".join([line(header), line(["-" * width for width in widths]), *map(line, cells)])


def _is_number(text: str) -> bool:
    return text[:1].isdigit() or text in ("-", "")


def note(text: str) -> None:
    """Say something on the side, where it does not disturb what a program reads."""
    print(text, file=sys.stderr)
