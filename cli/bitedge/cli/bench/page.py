"""`bitedge bench page R1.json R2.json ... --markdown PAGE.md`: a page with a table and a chart for every report."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bitedge.cli.bench import kernels
from bitedge.cli.bench.report import chart, markdown
from bitedge.cli.errors import CommandError
from bitedge.cli.output import emit, write_atomically

INTRODUCTION = """# Benchmarks

Every engine ran in a process of its own, pinned to its threads, on the same images; the engines took turns in
rounds, so that a slow moment of the machine fell on all of them alike. A row counts only when its answer agrees with
the reference, the core's readable scalar kernels, on inputs that no rounding tips. *speed-up* is how many times longer
that engine takes than bitedge in the same run: ratios carry over to other machines better than milliseconds do.

The networks have random weights, which take as long as trained ones. *tflite xnnpack* is the same network in float32,
converted by TensorFlow for this comparison only; *larq* is Larq Compute Engine, which is fast on ARM and not on x86.

This page is written by `bitedge bench page`, from reports of `bitedge bench --json`; each title names its command.
[on-device.md](on-device.md) explains the columns and measures on other devices.
"""


def run_page(args: argparse.Namespace) -> int:
    """Write the page and its charts, which lie in `images/` beside it."""
    reports = [Path(word) for word in args.target[1:]]
    if not reports or args.markdown is None:
        raise CommandError("page takes reports and a file: bitedge bench page A.json B.json --markdown PAGE.md")
    images = args.markdown.parent / "images"
    documents = [read(path) for path in reports]
    images.mkdir(parents=True, exist_ok=True)
    parts = [kernel_section(each) if "layer" in each["rows"][0] else section(each, images) for each in documents]
    write_atomically(args.markdown, "\n".join([INTRODUCTION, *parts]))
    emit(args, {"page": str(args.markdown)}, f"{args.markdown}: {len(reports)} reports")
    return 0


def section(document: Mapping[str, Any], images: Path) -> str:
    """One network: command, machine, table and chart."""
    title = document["rows"][0]["net"]
    picture = images / f"bench-{re.sub('[^a-z0-9]+', '-', title.lower()).strip('-')}.png"
    chart(title, document["rows"], picture)
    head, machine, table = markdown(title, document["host"], document["rows"]).split("\n\n", 2)
    about = f"`{document.get('command', 'bitedge bench')}` on {machine}{details(document['host'])}"
    return "\n\n".join(
        [head.replace("###", "##"), about, f"{table}\n![{title}: milliseconds](images/{picture.name})\n"]
    )


def details(host: Mapping[str, Any]) -> str:
    """What else the report knows of the machine and the peers, as the rest of a sentence."""
    versions = ", ".join(f"{name} {number}" for name, number in (host.get("versions") or {}).items())
    parts = [host.get("features"), host.get("compiler"), versions]
    return "".join(f"; {part}" for part in parts if part)


def kernel_section(document: Mapping[str, Any]) -> str:
    """A report of `bitedge bench kernels`."""
    return kernels.markdown(document).replace("###", "##", 1)


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
