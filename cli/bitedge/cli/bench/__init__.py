"""Measure latency on this device, with the peers side by side.

bitedge bench model.gguf             the core alone
bitedge bench EXPORT_DIR             every artifact of an export, each engine in its own process
bitedge bench --net birealnet18      a network with random weights: no training and no download needed
bitedge bench kernels                every kernel of the core, layer by layer, next to the bare loop and OpenVINO
bitedge bench pareto [NAME...]       accuracy against time and bytes, beside MobileNets (--chart, --markdown)
bitedge bench optimizers             Bop and Bop2ndOrder against torch's Adam
bitedge bench compare A.json B.json  two reports of --json, with noise taken into account
bitedge bench page A.json B.json     a page with tables and charts of such reports (--markdown PAGE.md)
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from bitedge.cli.bench.networks import NETWORKS
from bitedge.cli.errors import CommandError
from bitedge.cli.output import emit, note, write_atomically


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take what to measure, how, and the gates."""
    add = parser.add_argument
    add(
        "target",
        nargs="*",
        metavar="TARGET",
        help="model.gguf, an export folder, or a word as above",
    )
    add(
        "--net",
        choices=NETWORKS,
        metavar="NAME",
        help=f"build this network instead of taking a file: {', '.join(NETWORKS)}",
    )
    add("--width", type=int, metavar="W", help="with --net: its width (default: the paper's)")
    add("--image-size", type=int, metavar="N", help="with --net: side of the image (default: the paper's)")
    add("--random-weights", action="store_true", help="with --net: random weights, which is what --net does anyway")
    add("--engines", metavar="A,B", help="only these engines (default: all)")
    add("--kernels", metavar="NAME", help="force the core's kernels by name, or 'all' for a row of each that runs here")
    add("--threads", default="1", metavar="1,2", help="thread counts (default: 1)")
    add("--batch", default="1", metavar="1,8", help="batch sizes (default: 1)")
    add("--rounds", type=int, default=20, metavar="N", help="rounds in which the engines take turns (default: 20)")
    add("--profile", action="store_true", help="show the time of each of the core's layers")
    add("--data", type=Path, metavar="DIR", help="measure top-1 accuracy too, on the test images of this data set")
    add("--markdown", type=Path, metavar="FILE.md", help="write the table as Markdown")
    add("--chart", type=Path, metavar="FILE.png", help="draw the table")
    add("--max-p99-ms", type=float, metavar="X", help="fail when the core's p99 is above this")
    add(
        "--min-speedup",
        action="append",
        default=[],
        metavar="ENGINE=X",
        help="fail when bitedge is less than X times faster",
    )
    add("--min-top1", type=float, metavar="X", help="fail when the core's top-1 accuracy (0 to 1) is below this")


def numbers(option: str, text: str) -> list[int]:
    """Read a list of positive whole numbers."""
    try:
        values = [int(word) for word in text.split(",")]
    except ValueError:
        values = []
    if not values or min(values) < 1:
        raise CommandError(f"{option}: expected positive whole numbers such as 1,2, got {text}")
    return values


def run(args: argparse.Namespace) -> int:
    """Run the benchmark that the arguments name."""
    first = args.target[0] if args.target else None
    if first == "compare":
        return _compare(args)
    if first == "page":
        from bitedge.cli.bench.page import run_page

        return run_page(args)
    if first == "kernels":
        from bitedge.cli.bench.kernels import run_kernels

        return run_kernels(args, progress)
    if first == "pareto":
        from bitedge.cli.bench.pareto import run_pareto

        return run_pareto(args, progress)
    if first == "optimizers":
        from bitedge.cli.bench.optimizers import run_optimizers

        return run_optimizers(args, progress)
    if bool(args.net) == (len(args.target) == 1) or len(args.target) > 1:
        raise CommandError("give one model.gguf or export folder, or --net NAME; see bitedge bench --help")
    from bitedge.cli.bench.measure import measure

    return measure(args, Path(first) if first else None, progress)


def progress(text: str) -> None:
    """Say what is being measured, unless a program reads along on a terminal."""
    note(text) if not sys.stderr.isatty() else print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def _compare(args: argparse.Namespace) -> int:
    from bitedge.cli.bench.compare import compare

    if len(args.target) != 3:
        raise CommandError("compare takes two reports: bitedge bench compare A.json B.json")
    data, text = compare(Path(args.target[1]), Path(args.target[2]))
    emit(args, data, text)
    return 0


def publish(args: argparse.Namespace, title: str, document: dict[str, Any]) -> None:
    """Print the report, and write the Markdown and the chart that were asked for."""
    from bitedge.cli.bench import report

    host, rows = document["host"], document["rows"]
    emit(args, document, report.text(title, host, rows))
    if args.markdown:
        write_atomically(args.markdown, report.markdown(title, host, rows))
    if args.chart:
        report.chart(title, rows, args.chart)
