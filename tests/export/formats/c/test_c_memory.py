"""The arena: nothing is overwritten that is still to be read, and what can lie in one place does."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests.export.padded_graphs import WINDOWS

from bitedge.export.formats.c.arena import Arena, Buffer, place
from bitedge.export.formats.c.memory import plan, window_lead
from bitedge.export.ir import ops
from bitedge.export.ir.graph import Graph, Kind, Node, Value
from bitedge.export.ir.shapes import infer


def survives(window: ops.Window, entering: Value, made: Value, lead: int) -> bool:
    """Run a convolution on addresses: tell whether every word is read before it is written over."""
    base = max(lead, 0)
    written: set[int] = set()
    for pixel, (y, x) in enumerate(itertools.product(range(made.shape[0]), range(made.shape[1]))):
        for ky, kx in itertools.product(range(window.kernel[0]), range(window.kernel[1])):
            row = y * window.stride[0] - window.pads[0] + ky * window.dilation[0]
            column = x * window.stride[1] - window.pads[1] + kx * window.dilation[1]
            if 0 <= row < entering.shape[0] and 0 <= column < entering.shape[1]:
                first = base + (row * entering.shape[1] + column) * entering.shape[2]
                if written.intersection(range(first, first + entering.shape[2])):
                    return False
        written.update(range(pixel * made.shape[2], (pixel + 1) * made.shape[2]))
    return True


@pytest.mark.parametrize("channels", [(1, 1), (3, 1), (1, 3)])
@pytest.mark.parametrize("name", WINDOWS)
def test_a_lead_is_enough(name: str, channels: tuple[int, int]) -> None:
    window = WINDOWS[name]
    entering = Value("x", Kind.FLOAT, (6, 8, channels[0]))
    made = Value("y", Kind.FLOAT, (*window.output_size(6, 8), channels[1]))
    lead = window_lead(window, entering, made)
    assert survives(window, entering, made, lead)


def test_a_lead_is_the_least_of_a_plain_window() -> None:
    window, value = WINDOWS["same"], Value("x", Kind.FLOAT, (6, 8, 2))
    lead = window_lead(window, value, value)
    assert survives(window, value, value, lead)
    assert not survives(window, value, value, lead - 4)  # a pixel is taken to be read until it is written


def overlaps(arena: Arena, a: Buffer, b: Buffer) -> bool:
    first, second = arena.offsets[a.name], arena.offsets[b.name]
    return first < second + b.words and second < first + a.words


def test_buffers_that_live_together_lie_apart() -> None:
    random = np.random.default_rng(0)
    for _ in range(20):
        starts, spans = random.integers(0, 10, 12), random.integers(0, 4, 12)
        buffers = [
            Buffer(str(i), int(random.integers(1, 50)), int(first), int(first + span))
            for i, (first, span) in enumerate(zip(starts, spans, strict=True))
        ]
        arena = place(buffers, {})
        assert min(arena.offsets.values()) == 0
        assert max(arena.offsets[each.name] + each.words for each in buffers) == arena.words
        for a, b in itertools.combinations(buffers, 2):
            if a.first <= b.last and b.first <= a.last:
                assert not overlaps(arena, a, b)
        at_once = [sum(each.words for each in buffers if each.first <= t <= each.last) for t in range(15)]
        assert arena.words >= max(at_once)


def chain(*nodes: Node, shape: tuple[int, int, int] = (16, 16, 32)) -> Graph:
    return Graph("chain", Value("x", Kind.FLOAT, shape), nodes, nodes[-1].outputs[0])


def test_a_convolution_writes_over_its_input() -> None:
    weight = np.ones((32, 3, 3, 32), np.int8)
    conv = ops.BinaryConv2d(weight, ops.Window((3, 3), pads=(1, 1, 1, 1)), 0, ops.Threshold(np.zeros(32, np.int32)))
    sign = Node(ops.Elementwise(ops.Affine(emit="bits")), ("x",), ("a",), "sign")
    last = Node(ops.Elementwise(ops.Affine()), ("c",), ("y",), "last")
    graph = chain(sign, Node(conv, ("a",), ("b",), "one"), Node(conv, ("b",), ("c",), "two"), last)
    arena = plan(graph, infer(graph))
    one_map, scratch = 16 * 16, 2 * 9
    assert arena.words <= one_map + 2 * 16 + 2 + scratch  # a map and two rows instead of two maps


def test_elementwise_works_in_place_but_not_on_what_is_read_later() -> None:
    relu = ops.Elementwise(ops.Affine(activation="relu"))
    add = ops.Elementwise(ops.Affine())
    size = 16 * 16 * 32
    in_place = chain(*(Node(relu, (a,), (b,), b) for a, b in itertools.pairwise("xabcd")))
    assert plan(in_place, infer(in_place)).words == size
    kept = chain(
        Node(relu, ("x",), ("a",), "a"),
        Node(relu, ("a",), ("b",), "b"),
        Node(add, ("b", "a"), ("c",), "c"),
        Node(relu, ("c",), ("d",), "d"),
    )
    assert plan(kept, infer(kept)).words == 2 * size
