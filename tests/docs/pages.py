"""What the documentation tells its reader to type."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("docs/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "runtime" / "README.md"])
CALL = re.compile(r"([A-Z_]+=\S+ )*(bitedge|make|torchrun|python) (-m )?[a-z-]")


def blocks(page: Path, language: str = "") -> list[str]:
    """The fenced blocks of a page, of one language if it is named."""
    found = re.findall(r"^```(\w*)[^\n]*\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    return [body for kind, body in found if not language or kind == language]


def commands(page: Path) -> list[list[str]]:
    """Every line of a block that calls a program of this project, as words; a backslash continues a line."""
    lines = [line for block in blocks(page) for line in block.replace("\\\n", " ").splitlines()]
    called = (line.removeprefix("$ ").strip() for line in lines)
    found = [shlex.split(line, comments=True) for line in called if CALL.match(line) and line.count('"') % 2 == 0]
    return [words for words in found if words[1] not in ("ok", "FAILED")]  # rows of a benchmark's output
