"""`bitedge bench optimizers`: a step of Bop and Bop2ndOrder against torch's Adam, on BinaryNet's parameters."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from bitedge.cli.output import emit, table


def run_optimizers(args: argparse.Namespace, say: Callable[[str], None]) -> int:
    """Measure, and print the steps' milliseconds and ratios."""
    from bitedge.train.optim.benchmark import benchmark

    result = benchmark(width=args.width or 128, rounds=args.rounds, progress=say)
    emit(args, result, text(result))
    return 0


def text(result: dict[str, Any]) -> str:
    """The two tables: the optimizer alone, and a whole training step."""
    ratios: dict[str, dict[str, float]] = result["step_ratio"]
    columns = sorted({name for row in ratios.values() for name in row})
    steps = [
        (name, f"{ms:.2f}", *(f"{ratios[name][column]:.2f}" if name in ratios else "-" for column in columns))
        for name, ms in result["step_ms"].items()
    ]
    training = [
        (name, f"{ms:.1f}", f"{result['training_ratio'][name]:.3f}" if name in result["training_ratio"] else "-")
        for name, ms in result["training_ms"].items()
    ]
    return "\n".join(
        [
            f"{result['weights']:,} binary weights, {result['threads']} threads, torch {result['torch']}",
            "",
            table(("optimizer step", "ms", *(f"/ {column}" for column in columns)), steps),
            "",
            table(("training step", "ms", "/ bop"), training),
        ]
    )
