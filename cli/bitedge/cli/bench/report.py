"""A benchmark's rows as a table for the terminal, as Markdown, and as a chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bitedge.cli.output import table

MARKS = {
    "ok": "ok",
    "differs": "WRONG ANSWER",
    "missing": "not installed",
    "absent": "not exported",
    "failed": "failed",
}
HEADER = ("engine", "status", "threads", "batch", "size kB", "top-1 %", "ms p50", "ms p99", "images/s", "speed-up")


def speedups(rows: Sequence[Mapping[str, Any]]) -> list[float | None]:
    """How many times longer each row takes than bitedge at the same threads and batch; None where either is missing."""
    ours = {
        (row["threads"], row["batch"]): row["ms"]["p50"]
        for row in reversed(rows)
        if row["engine"] == "bitedge" and row["ms"]
    }
    return [
        row["ms"]["p50"] / ours[key] if row["ms"] and (key := (row["threads"], row["batch"])) in ours else None
        for row in rows
    ]


def cells(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """The rows as text, one cell per column of `HEADER`."""
    lines: list[tuple[str, ...]] = []
    for row, faster in zip(rows, speedups(rows), strict=True):
        ms = row["ms"]
        lines.append(
            (
                str(row["engine"]),
                MARKS[row["status"]],
                str(row["threads"]),
                str(row["batch"]),
                f"{row['bytes'] / 1024:.0f}" if row["bytes"] else "-",
                f"{100 * row['top1']:.1f}" if row.get("top1") is not None else "-",
                f"{ms['p50']:.3f}" if ms else "-",
                f"{ms['p99']:.3f}" if ms else "-",
                f"{row['images_per_s']:.0f}" if ms else "-",
                f"{faster:.1f}x" if faster else "-",
            )
        )
    return lines


def text(title: str, host: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """The report for a terminal, with the reason or the install line of every engine that has no number."""
    lines = [f"{title} on {host['cpu']}, {host['cores']} cores, {host['system']}", "", table(HEADER, cells(rows))]
    lines += ["", "speed-up: how many times longer that engine takes than bitedge, same threads and batch, in this run"]
    for row in rows:
        if row.get("reason"):
            lines.append(f"{row['engine']}: {MARKS[row['status']]}: {row['reason']}")
        if row.get("layers"):
            lines += ["", layers(row["layers"])]
    return "\n".join(lines)


def layers(profile: Sequence[Mapping[str, Any]]) -> str:
    """The profile of the core's layers: where the time goes, and how near to the bare loop's rate binary ones come."""
    total = sum(layer["ms"] for layer in profile)
    rows = [
        (
            layer["name"],
            layer["op"],
            layer["kernel"],
            f"{layer['ms']:.4f}",
            f"{100 * layer['ms'] / total:.1f}",
            f"{layer['gmacs_per_s']:.0f}" if layer["gmacs_per_s"] else "-",
            f"{layer['limit_gmacs_per_s']:.0f}" if layer["limit_gmacs_per_s"] else "-",
            f"{100 * layer['share']:.0f}" if layer["share"] else "-",
        )
        for layer in profile
    ]
    rows.append(("total", "", "", f"{total:.4f}", "100.0", "-", "-", "-"))
    return table(("layer", "operator", "kernel", "ms", "%", "GMAC/s", "bare loop", "share %"), rows)


def markdown(title: str, host: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """The report as Markdown."""
    lines = [f"### {title}", "", f"{host['cpu']}, {host['cores']} cores, {host['system']}", ""]
    lines += ["| " + " | ".join(HEADER) + " |", "|" + "---|" * len(HEADER)]
    lines += ["| " + " | ".join(row) + " |" for row in cells(rows)]
    return "\n".join(lines) + "\n"


def chart(title: str, rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw the p50 of every measured row as a bar, and write a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [row for row in rows if row["ms"]][::-1]
    labels = [f"{row['engine']}, {row['threads']} thread{'s' if row['threads'] > 1 else ''}" for row in shown]
    values = [row["ms"]["p50"] / row["batch"] for row in shown]
    figure, axes = pyplot.subplots(figsize=(8, 0.7 + 0.38 * len(shown)), dpi=120)
    colours = ["#0a7d5a" if row["engine"].startswith("bitedge") else "#9aa5b1" for row in shown]
    bars = axes.barh(labels, values, color=colours)
    axes.bar_label(bars, [f" {value:.3g} ms" if value < 1000 else f" {value:.0f} ms" for value in values])
    axes.set_xlim(0, 1.15 * max(values))
    axes.set_xlabel("milliseconds per image, p50 (shorter is better)")
    axes.set_title(title)
    axes.spines[["top", "right"]].set_visible(False)
    save_figure(figure, path)


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure of matplotlib as PNG, whole or not at all."""
    from matplotlib import pyplot

    figure.tight_layout()
    temporary = path.with_name(f".{path.name}.tmp")
    figure.savefig(temporary, format="png")
    temporary.replace(path)
    pyplot.close(figure)
