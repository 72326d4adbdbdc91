"""Check that every artifact of an export gives the same answer as the torch module that it was made from."""

from __future__ import annotations

import argparse
from pathlib import Path

from bitedge.cli.output import emit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take the export folder and the images."""
    add = parser.add_argument
    add("export_dir", type=Path, metavar="EXPORT_DIR", help="folder that `bitedge export` wrote")
    add("--data", type=Path, metavar="DIR", help="the data set (default: where the training found it)")
    add("--limit", type=int, default=1000, metavar="N", help="how many test images, 0 for all (default: 1000)")
    add("--require", metavar="A,B", default="", help="fail if one of these engines (core,onnx,int8,tflite) cannot run")


def run(args: argparse.Namespace) -> int:
    """Verify, print the table, and fail on a breach of the contract."""
    from bitedge.export import verify_export

    verdict = verify_export(
        args.export_dir,
        data=args.data,
        limit=args.limit or None,
        require=[name for name in args.require.split(",") if name],
    )
    emit(args, verdict.as_dict(), verdict.text())
    return 0 if verdict.passed else 1
