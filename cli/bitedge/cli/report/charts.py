"""Small charts as inline SVG: lines over epochs, bars of latencies. They take their colours from the page's style."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 460, 220, 56, 28, 12


def lines(title: str, series: Mapping[str, Sequence[float]], *, log: bool = False) -> str:
    """Draw values over epochs 1, 2, ..., one line for each name; on a logarithmic axis zeros are left out."""
    kept = {name: [(i, v) for i, v in enumerate(values, 1) if not log or v > 0] for name, values in series.items()}
    points = [point for line in kept.values() for point in line]
    if not points:
        return ""
    scale = math.log10 if log else float
    low, high = min(scale(v) for _, v in points), max(scale(v) for _, v in points)
    low, high = (low - 0.5, high + 0.5) if low == high else (low, high)
    last = max(max(i for i, _ in points), 2)

    def at(i: int, v: float) -> str:
        x = LEFT + (i - 1) / (last - 1) * (WIDTH - LEFT - 12)
        y = TOP + (high - scale(v)) / (high - low) * (HEIGHT - TOP - BOTTOM)
        return f"{x:.1f},{y:.1f}"

    drawn = []
    for number, (name, line) in enumerate(kept.items()):
        path = " ".join(at(i, v) for i, v in line)
        drawn.append(f'<polyline class="line s{number}" points="{path}"/>')
        drawn.append(
            f'<text class="key s{number}" x="{LEFT + 8}" y="{HEIGHT - BOTTOM - 8 - 15 * number}">{escape(name)}</text>'
        )
    ticks = [low, (low + high) / 2, high]
    shown = [f"{10**t:.1e}" if log else f"{t:.3g}" for t in ticks]
    for tick, text in zip(ticks, shown, strict=True):
        y = TOP + (high - tick) / (high - low) * (HEIGHT - TOP - BOTTOM)
        drawn.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - 12}" y1="{y:.1f}" y2="{y:.1f}"/>')
        drawn.append(f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
    drawn.append(f'<text class="tick" x="{LEFT}" y="{HEIGHT - 8}">epoch 1</text>')
    drawn.append(f'<text class="tick" x="{WIDTH - 12}" y="{HEIGHT - 8}" text-anchor="end">{last}</text>')
    return _figure(title, HEIGHT, drawn)


def bars(title: str, values: Mapping[str, float], unit: str) -> str:
    """Draw one bar for each name, longest for the largest value."""
    if not values:
        return ""
    height, most = 30 * len(values) + 8, max(values.values())
    drawn = []
    for number, (name, value) in enumerate(values.items()):
        y, length = 30 * number + 6, max(1.0, value / most * (WIDTH - 260))
        drawn.append(f'<text class="tick" x="140" y="{y + 15}" text-anchor="end">{escape(name)}</text>')
        drawn.append(f'<rect class="bar s{min(number, 1)}" x="148" y="{y}" width="{length:.1f}" height="20" rx="2"/>')
        drawn.append(f'<text class="tick" x="{156 + length:.1f}" y="{y + 15}">{value:.3g} {unit}</text>')
    return _figure(title, height, drawn)


def _figure(title: str, height: int, drawn: Sequence[str]) -> str:
    body = "".join(drawn)
    return (
        f'<figure><figcaption>{escape(title)}</figcaption><svg viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(title)}">{body}</svg></figure>'
    )
