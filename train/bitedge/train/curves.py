"""Pictures of runs: accuracy, loss, flips and schedules over the epochs."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bitedge.train.checkpoint import write_bytes

Rows = Sequence[Mapping[str, Any]]

# One panel each: title, the columns that belong to it, and whether its axis is logarithmic.
PANELS = (
    ("accuracy", ("train_accuracy", "accuracy"), False),
    ("loss", ("train_loss", "loss"), False),
    ("flips per step", ("flip_ratio", "noise_flip_ratio"), True),
    ("schedules", ("gamma", "sigma", "tau", "lr"), True),
)


def plot_runs(path: Path, runs: Mapping[str, Rows], title: str) -> None:
    """Draw the panels for one run, or for several side by side, into a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    for axes, (name, columns, logarithmic) in zip(figure.subplots(2, 2).flat, PANELS, strict=True):
        for color, (run, rows) in enumerate(runs.items()):
            for style, column in enumerate(columns):
                _draw(axes, rows, column, run if len(runs) > 1 else "", f"C{color + style * len(runs)}", logarithmic)
        axes.set_title(name)
        axes.set_xlabel("epoch")
        axes.grid(alpha=0.3)
        if logarithmic and axes.lines:
            axes.set_yscale("log")
        if axes.lines:
            axes.legend(fontsize="small")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100, metadata={"Software": None})
    write_bytes(path, buffer.getvalue())


def _draw(axes: Any, rows: Rows, column: str, run: str, color: str, positive_only: bool) -> None:
    points = [(row["epoch"], row[column]) for row in rows if isinstance(row.get(column), int | float)]
    if positive_only:
        points = [(epoch, value) for epoch, value in points if value > 0]
    if points:
        epochs, values = zip(*points, strict=True)
        marker = "." if len(points) < 40 else ""
        axes.plot(epochs, values, label=f"{run} {column}".strip(), color=color, marker=marker)
