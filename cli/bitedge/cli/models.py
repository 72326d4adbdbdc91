"""List the networks that can be trained, exported and measured by name, with what their authors publish.

bitedge models             every network
bitedge models "*react*"   those whose name matches

Accuracy is as published by the source in the last column, never measured here. Weights, multiplications and sizes are
counted on the network at its published size; a packed size has one bit per binary weight and four bytes per number.
A second table has the trained models that come with the package, with the accuracy that was measured here.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from bitedge.cli.errors import CommandError
from bitedge.cli.output import emit, table

HEADER = ("network", "data", "top-1 %", "1-bit weights", "numbers", "1-bit MACs", "float MACs", "MB packed", "source")

TRAINED = ("trained model", "network", "data", "top-1 %, measured here", "images", "recipe", "MB packed")

COUNTS = ("binary_weights", "float_weights", "binary_macs", "float_macs", "packed_bytes")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take the pattern of names."""
    parser.add_argument("pattern", nargs="?", default="*", metavar="PATTERN", help="names, with wildcards (default: *)")


def run(args: argparse.Namespace) -> int:
    """Count every network that matches and print the table."""
    from bitedge.train import list_models, list_pretrained

    names = list_models(args.pattern)
    if not names:
        raise CommandError(f"no network matches {args.pattern!r}: there are {', '.join(list_models())}")
    rows = [describe(name) for name in names]
    trained = [row for name in list_pretrained() if (row := describe_trained(name))["network"] in names]
    text = table(HEADER, [cells(row) for row in rows])
    if trained:
        text += "\n\n" + table(TRAINED, [trained_cells(row) for row in trained])
    emit(args, {"models": rows, "pretrained": trained}, text)
    return 0


def describe(name: str) -> dict[str, Any]:
    """Count a network at its published size."""
    from bitedge.train.models import create_model
    from bitedge.train.models.published import PUBLISHED
    from bitedge.train.models.summary import summarize

    known = PUBLISHED.get(name)
    size = known.image_size if known else 224
    totals = summarize(create_model(name), (3, size, size)).totals()
    return {
        "name": name,
        "data": known.data if known else None,
        "published_top1": known.top1 if known else None,
        "source": known.source if known else None,
        **{key: totals[key] for key in COUNTS},
    }


def describe_trained(name: str) -> dict[str, Any]:
    """What was measured of a model that comes with the package."""
    from bitedge.runtime.box import boxed_models
    from bitedge.train.engine.run import BUNDLED

    about = json.loads((BUNDLED / name / "model.json").read_text(encoding="utf-8"))
    test = about["training"]["test"]["best"]
    return {
        "name": name,
        "network": about["network"]["name"],
        "data": about["data"]["name"],
        "top1": 100 * test["accuracy"],
        "images": test["images"],
        "recipe": about["training"]["recipe"],
        "packed_bytes": boxed_models()[name].stat().st_size,
    }


def trained_cells(row: dict[str, Any]) -> list[str]:
    """Return a trained model's row as text."""
    accuracy, size = f"{row['top1']:.2f}", f"{row['packed_bytes'] / 1e6:.2f}"
    return [row["name"], row["network"], row["data"], accuracy, f"{row['images']:,}", row["recipe"], size]


def cells(row: dict[str, Any]) -> list[str]:
    """Return a row as text."""
    return [
        row["name"],
        row["data"] or "-",
        "-" if row["published_top1"] is None else f"{row['published_top1']:.1f}",
        f"{row['binary_weights']:,}",
        f"{row['float_weights']:,}",
        f"{row['binary_macs']:,}",
        f"{row['float_macs']:,}",
        f"{row['packed_bytes'] / 1e6:.2f}",
        row["source"] or "-",
    ]
