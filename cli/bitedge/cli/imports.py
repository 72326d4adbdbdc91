"""Turn an ONNX, QONNX or Larq TFLite file into artifacts, each compared with the engine that the file comes from."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from bitedge.cli.errors import CommandError
from bitedge.cli.output import emit, note


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take the file, where to write, and what is known beside it."""
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help="network.onnx or network.tflite")
    add("--out", type=Path, required=True, metavar="DIR", help="where the artifacts go")
    add("--formats", metavar="A,B", help="only these formats (default: all that are installed, but c)")
    add("--strict", action="store_true", help="fail when a layer with ±1 weights would stay float")
    add("--labels", type=Path, metavar="FILE.txt", help="names of the classes, one per line")
    add("--preprocessing", type=Path, metavar="FILE.json", help="how uint8 images become the network's input")
    add("--images", type=Path, metavar="FILE.npy", help="images [N, H, W, C] to compare on, beside seeded inputs")


def run(args: argparse.Namespace) -> int:
    """Import and print the report."""
    from bitedge.export import import_model

    labels = _read(args.labels).splitlines() if args.labels else None
    preprocessing = _preprocessing(args.preprocessing) if args.preprocessing else None
    images = _images(args.images) if args.images else None
    note(f"reading {args.file}")
    network = import_model(args.file, labels=labels, preprocessing=preprocessing)
    note(f"writing to {args.out}, and comparing every file with {network.reference.name}")
    formats = args.formats.split(",") if args.formats else None
    report = network.export(args.out, formats=formats, strict=args.strict, images=images)
    emit(args, report.as_dict(), report.text())
    return 1 if report.failures else 0


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"cannot read {path}: {error}") from error


def _preprocessing(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(_read(path))
        if not isinstance(found, dict) or not {"size", "scale", "offset"} <= found.keys():
            raise ValueError("expected an object with size, scale and offset")
    except ValueError as error:
        raise CommandError(f"{path} does not describe preprocessing: {error}") from error
    return {"resize": None, "interpolation": "bilinear", **found}


def _images(path: Path) -> Any:
    import numpy as np

    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise CommandError(f"cannot read {path} as images: {error}") from error
