"""Graphs for people: text and SVG."""

from __future__ import annotations

import subprocess
import sys
from xml.etree import ElementTree

import pytest
import torch
from tests.export.small_networks import GRID, UserResidual

from bitedge.export import lower
from bitedge.export.capture.capture import capture
from bitedge.export.ir import render
from bitedge.export.ir.graph import Graph

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def graph() -> Graph:
    torch.manual_seed(0)
    return lower(capture(UserResidual(), (3, 32, 32), preprocessing=GRID))


def test_text_has_one_line_per_value_maker(graph: Graph) -> None:
    lines = render.text(render.boxes(graph)).splitlines()
    assert len(lines) == len(graph.nodes) + 1
    assert lines[0].split() == ["image", "=", "input", "uint8", "32x32x3", "()"]
    assert "float32 16x16x32, bits 16x16x32" in "\n".join(lines)


def test_picture_shows_every_node_and_every_edge(graph: Graph) -> None:
    drawn = render.boxes(graph)
    root = ElementTree.fromstring(render.svg(drawn, "a < b & c"))
    boxes = root.findall(f"{SVG}g")
    assert len(boxes) == len(drawn)
    edges = {(box.outputs, name) for box in drawn for name in box.inputs}
    makers = {name: box.outputs for box in drawn for name in box.outputs}
    distinct = {(target, makers[name]) for target, name in edges}
    assert len([path for path in root.findall(f"{SVG}path") if path.get("marker-end")]) == len(distinct)
    assert root.findtext(f"{SVG}text") == "a < b & c"


def test_boxes_do_not_overlap_and_lie_inside(graph: Graph) -> None:
    root = ElementTree.fromstring(render.svg(render.boxes(graph), "net"))
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    corners = []
    for box in root.findall(f"{SVG}g"):
        rectangle = box.find(f"{SVG}rect")
        assert rectangle is not None
        corners.append((float(rectangle.get("x", -1)), float(rectangle.get("y", -1))))
    for index, (x, y) in enumerate(corners):
        assert 0 <= x <= width - render.BOX_WIDTH
        assert 0 <= y <= height - render.BOX_HEIGHT
        for other_x, other_y in corners[:index]:
            assert abs(x - other_x) >= render.BOX_WIDTH or abs(y - other_y) >= render.BOX_HEIGHT


def test_edges_that_skip_a_row_do_not_share_a_lane() -> None:
    lanes = render._lanes([(0, 1), (0, 3), (1, 4), (3, 6), (4, 6)])
    assert lanes == [None, 0, 1, 0, 1]


def test_drawing_needs_only_numpy() -> None:
    code = "import sys, bitedge.export.ir.render; print([m for m in ('torch', 'gguf') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
