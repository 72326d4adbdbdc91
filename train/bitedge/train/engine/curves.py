"""Pictures of runs: accuracy, loss, flips and schedules over the epochs."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bitedge.train.engine.checkpoint import write_bytes

Rows = Sequence[Mapping[str, Any]]

# One panel each: title, the columns that belong to it, and whether its axis is logarithmic.
PANELS = (
    ("accuracy", ("train_accuracy", "accuracy"), False),
    ("loss", ("train_loss", "loss"), False),
    ("flips per step", ("flip_ratio", "noise_flip_ratio"), True),
    ("schedules", ("gamma", "sigma", "tau", "lr"), True),
)


STYLES = ("-", "--", ":", "-.")
"""Line styles of a panel's columns when colours tell runs apart."""


def plot_runs(path: Path, runs: Mapping[str, Rows], title: str) -> None:
    """Draw the panels for one run, or for several together, into a PNG.

    Of one run every column has a colour; of several every run has one, and columns differ by the style of their line.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    several = len(runs) > 1
    below = 0.25 * -(-len(runs) // 3) + 0.1 if several else 0.0  # inches of the legend
    height = 7 + below
    figure = Figure(figsize=(11, height))
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    # fixed margins: to let matplotlib find them takes longer than to draw
    margins = {"left": 0.07, "right": 0.98, "top": 1 - 0.75 / height, "bottom": (0.55 + below) / height}
    panels = figure.subplots(2, 2, gridspec_kw={**margins, "hspace": 0.3, "wspace": 0.17})
    for axes, (name, columns, logarithmic) in zip(panels.flat, PANELS, strict=True):
        keys = []
        for index, column in enumerate(columns):
            style: dict[str, Any] = {"linestyle": STYLES[index]} if several else {"color": f"C{index}"}
            drawn = [
                _draw(axes, rows, column, {**style, **({"color": f"C{number}"} if several else {})}, logarithmic)
                for number, rows in enumerate(runs.values())
            ]
            if any(drawn):
                keys.append(Line2D([], [], label=column, **{"color": "0.3", **style}))
        axes.set(title=name, xlabel="epoch")
        axes.grid(alpha=0.3)
        axes.xaxis.get_major_locator().set_params(integer=True)
        if logarithmic and axes.lines:
            axes.set_yscale("log")
        if keys:
            axes.legend(handles=keys, fontsize="small")
    if several:
        handles = [Line2D([], [], color=f"C{number}", label=run) for number, run in enumerate(runs)]
        figure.legend(handles=handles, loc="lower center", ncols=3, fontsize="small")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100, metadata={"Software": None})
    write_bytes(path, buffer.getvalue())


def _draw(axes: Any, rows: Rows, column: str, style: Mapping[str, Any], positive_only: bool) -> bool:
    """Draw one column of one run, and tell whether it had any value."""
    points = [(row["epoch"], row[column]) for row in rows if isinstance(row.get(column), int | float)]
    if positive_only:
        points = [(epoch, value) for epoch, value in points if value > 0]
    if points:
        epochs, values = zip(*points, strict=True)
        axes.plot(epochs, values, marker="." if len(points) < 40 else "", **style)
    return bool(points)
