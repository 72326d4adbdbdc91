"""Turn a training run into artifacts for devices, with a report of what became of every layer."""

from __future__ import annotations

import argparse
from pathlib import Path

from bitedge.cli.output import emit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take the run folder, where to write, and which formats."""
    add = parser.add_argument
    add("run_dir", type=Path, metavar="RUN_DIR", help="folder of a training run")
    add("--out", type=Path, metavar="DIR", help="where the artifacts go (default: RUN_DIR/export)")
    add("--formats", metavar="A,B", help="only these formats (default: all that are installed, but c)")
    add("--checkpoint", choices=("best", "last"), default="best", help="which weights (default: best)")
    add("--fp16", action="store_true", help="store float weights in half precision")
    add("--strict", action="store_true", help="fail when a layer that was trained binary would stay float")
    add(
        "--max-flash",
        type=_size,
        metavar="BYTES",
        help="fail when the format c has more bytes of constants (256K: KiB)",
    )
    add("--max-ram", type=_size, metavar="BYTES", help="fail when the format c takes more bytes of memory")
    add("--data", type=Path, metavar="DIR", help="the data set (default: where the training found it)")
    add("--limit", type=int, default=1000, metavar="N", help="test images to measure --fp16 on (default: 1000)")


def _size(text: str) -> int:
    """Read a number of bytes; K and M count in 1024 and 1024 * 1024."""
    unit = {"K": 2**10, "M": 2**20}.get(text[-1:].upper(), 1)
    digits = text[:-1] if unit > 1 else text
    if not digits.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a number of bytes such as 65536 or 64K, got {text!r}")
    return unit * int(digits)


def run(args: argparse.Namespace) -> int:
    """Export and print the report."""
    from bitedge.export import export_run

    formats = args.formats.split(",") if args.formats else None
    report = export_run(
        args.run_dir,
        args.out,
        checkpoint=args.checkpoint,
        formats=formats,
        fp16=args.fp16,
        strict=args.strict,
        data=args.data,
        limit=args.limit,
        max_flash=args.max_flash,
        max_ram=args.max_ram,
    )
    emit(args, report.as_dict(), report.text())
    return 1 if report.failures else 0
