"""A graph for people: as text, one line per node, and as an SVG picture, laid out here without any other program.

Works on `Box`es, so that a graph in memory and a packed file (read by the runtime alone) are drawn the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from bitedge.export.ir import ops
from bitedge.export.ir.graph import Graph, Value
from bitedge.export.ir.shapes import infer

BOX_WIDTH, BOX_HEIGHT = 250, 46
GAP_X, GAP_Y = 40, 34
LANE = 16
MARGIN = 24
COLOURS = {
    "input": "#e8e8e8",
    "binary_conv2d": "#bfe3c4",
    "image_conv2d": "#bfe3c4",
    "max_pool2d": "#d5e8f7",
    "avg_pool2d": "#d5e8f7",
    "conv2d": "#f9d9b8",
}
OTHER_COLOUR = "#f3eecf"


@dataclass(frozen=True)
class Box:
    """One node to draw: its operator, a line of detail, and the values that it reads and makes."""

    op: str
    detail: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def boxes(graph: Graph) -> list[Box]:
    """Give the boxes of a graph, its input first."""
    values = infer(graph)
    first = Box("input", describe(graph.input), (), (graph.input.name,))
    return [first, *(_box(node.op, node.inputs, node.outputs, values) for node in graph.nodes)]


def _box(op: ops.Op, inputs: tuple[str, ...], outputs: tuple[str, ...], values: dict[str, Value]) -> Box:
    return Box(op.name, ", ".join(describe(values[name]) for name in outputs), inputs, outputs)


def describe(value: Value) -> str:
    """Give kind and shape of a value in a few characters."""
    return f"{value.kind} {'x'.join(map(str, value.shape))}"


def text(drawn: Sequence[Box]) -> str:
    """Write one line per node: what it makes, how, and from what."""
    rows = [(", ".join(box.outputs), box.op, box.detail, ", ".join(box.inputs)) for box in drawn]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(
        f"{name:{widths[0]}} = {op:{widths[1]}}  {detail:{widths[2]}}  ({inputs})".rstrip()
        for name, op, detail, inputs in rows
    )


def svg(drawn: Sequence[Box], title: str) -> str:
    """Draw the graph from top to bottom; an edge that skips a row runs in a lane of its own on the right."""
    maker = {name: index for index, box in enumerate(drawn) for name in box.outputs}
    depth: list[int] = []
    for box in drawn:
        depth.append(1 + max((depth[maker[name]] for name in box.inputs), default=-1))
    rows: list[list[int]] = [[] for _ in range(max(depth) + 1)]
    for index, level in enumerate(depth):
        rows[level].append(index)
    widest = max(len(row) for row in rows)
    centre = MARGIN + (widest * (BOX_WIDTH + GAP_X) - GAP_X) / 2
    place: dict[int, tuple[float, float]] = {}
    for level, row in enumerate(rows):
        left = centre - (len(row) * (BOX_WIDTH + GAP_X) - GAP_X) / 2
        for column, index in enumerate(row):
            place[index] = (left + column * (BOX_WIDTH + GAP_X), 2 * MARGIN + level * (BOX_HEIGHT + GAP_Y))
    edges = sorted({(maker[name], index) for index, box in enumerate(drawn) for name in box.inputs})
    lanes = _lanes([(depth[a], depth[b]) for a, b in edges])
    right = centre + (widest * (BOX_WIDTH + GAP_X) - GAP_X) / 2
    paths = [_edge(place[a], place[b], lane, right) for (a, b), lane in zip(edges, lanes, strict=True)]
    shapes = [_rectangle(box, *place[index]) for index, box in enumerate(drawn)]
    width = right + MARGIN + LANE * (2 + max((lane for lane in lanes if lane is not None), default=0))
    height = 3 * MARGIN + len(rows) * (BOX_HEIGHT + GAP_Y)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" font-size="12">\n'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#555"/></marker></defs>\n'
        f'<rect width="100%" height="100%" fill="white"/>\n<text x="{MARGIN}" y="{MARGIN}" font-size="15" '
        f'font-weight="bold">{escape(title)}</text>\n' + "\n".join([*paths, *shapes]) + "\n</svg>\n"
    )


def _lanes(spans: Sequence[tuple[int, int]]) -> list[int | None]:
    """Give each edge that skips a row the first lane that is free over its whole length."""
    taken: list[list[tuple[int, int]]] = []
    lanes: list[int | None] = []
    for start, end in spans:
        if end - start == 1:
            lanes.append(None)
            continue
        free = (i for i, lane in enumerate(taken) if all(end <= first or last <= start for first, last in lane))
        lane = next(free, len(taken))
        if lane == len(taken):
            taken.append([])
        taken[lane].append((start, end))
        lanes.append(lane)
    return lanes


def _edge(source: tuple[float, float], target: tuple[float, float], lane: int | None, right: float) -> str:
    x1, y1 = source[0] + BOX_WIDTH / 2, source[1] + BOX_HEIGHT
    x2, y2 = target[0] + BOX_WIDTH / 2, target[1]
    if lane is None:
        middle = (y1 + y2) / 2
        path = f"M{x1:.0f} {y1:.0f} C{x1:.0f} {middle:.0f} {x2:.0f} {middle:.0f} {x2:.0f} {y2:.0f}"
    else:
        x, x1, x2 = right + LANE * (1 + lane), x1 + BOX_WIDTH / 4, x2 + BOX_WIDTH / 4
        path = f"M{x1:.0f} {y1:.0f} v{GAP_Y / 3:.0f} H{x:.0f} V{y2 - GAP_Y / 3:.0f} H{x2:.0f} V{y2:.0f}"
    return f'<path d="{path}" fill="none" stroke="#555" marker-end="url(#tip)"/>'


def _rectangle(box: Box, x: float, y: float) -> str:
    colour = COLOURS.get(box.op, OTHER_COLOUR)
    name = box.outputs[0] if len(box.outputs[0]) <= 24 else "…" + box.outputs[0][-23:]
    return (
        f"<g><title>{escape(', '.join(box.outputs))}</title>"
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="5" '
        f'fill="{colour}" stroke="#555"/>'
        f'<text x="{x + 8:.0f}" y="{y + 18:.0f}" font-weight="bold">{escape(box.op)}</text>'
        f'<text x="{x + BOX_WIDTH - 8:.0f}" y="{y + 18:.0f}" text-anchor="end">{escape(name)}</text>'
        f'<text x="{x + 8:.0f}" y="{y + 36:.0f}" fill="#444">{escape(box.detail)}</text></g>'
    )
