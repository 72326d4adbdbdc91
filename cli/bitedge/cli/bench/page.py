"""`bitedge bench page R1.json R2.json ... --markdown PAGE.md`: a page with a table and a chart for every report."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

from bitedge.cli.bench.report import chart, markdown
from bitedge.cli.errors import CommandError
from bitedge.cli.output import emit, write_atomically

INTRODUCTION = """# Benchmarks

Every engine ran in a process of its own, pinned to its threads, on the same images; the engines took turns in
rounds, so that a slow moment of the machine fell on all of them alike. A row counts only when its answer agrees with
the reference. *speed-up* is how many times longer that engine takes than bitedge in the same run: ratios carry
over to other machines better than milliseconds do.

This page is written by `bitedge bench page`, from reports of `bitedge bench --json`; each title names its command.
"""


def run_page(args: argparse.Namespace) -> int:
    """Write the page and its charts, which lie in `images/` beside it."""
    reports = [Path(word) for word in args.target[1:]]
    if not reports or args.markdown is None:
        raise CommandError("page takes reports and a file: bitedge bench page A.json B.json --markdown PAGE.md")
    images = args.markdown.parent / "images"
    images.mkdir(parents=True, exist_ok=True)
    parts = [INTRODUCTION]
    for path in reports:
        document = read(path)
        title = document["rows"][0]["net"]
        picture = images / f"bench-{re.sub('[^a-z0-9]+', '-', title.lower()).strip('-')}.png"
        chart(title, document["rows"], picture)
        command = document.get("command", "bitedge bench")
        head, body = markdown(title, document["host"], document["rows"]).split("\n\n", 1)
        parts.append(
            f"{head.replace('###', '##')}\n\n`{command}`, {body}\n![{title}: milliseconds](images/{picture.name})\n"
        )
    write_atomically(args.markdown, "\n".join(parts))
    emit(args, {"page": str(args.markdown)}, f"{args.markdown}: {len(reports)} reports")
    return 0


def read(path: Path) -> dict[str, Any]:
    """Read one report."""
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not document["rows"]:
            raise CommandError(f"{path}: the report has no rows")
        return document
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, CommandError):
            raise
        raise CommandError(f"{path}: not a report of bitedge bench --json ({type(error).__name__}: {error})") from None
