"""Golden vectors: the answers are the reference's, and no input hangs on a rounding."""

from __future__ import annotations

import numpy as np

from bitedge.export.ir import ops, reference
from bitedge.export.ir.graph import Graph, Kind, Node, Value
from bitedge.export.verify.golden import golden_input, make_golden


def _graph(bias: float) -> Graph:
    """A float layer whose sign decides a large answer."""
    weight = np.zeros((1, 1, 1, 2), np.float32)
    weight[0, 0, 0] = (1.0, -1.0)
    scale = ops.Affine(np.ones(1, np.float32), np.full(1, bias, np.float32), emit="bits")
    nodes = (
        Node(ops.Conv2d(weight, epilogue=scale), ("image",), ("bits",)),
        Node(ops.Elementwise(ops.Affine(np.full(1, 100, np.float32), np.zeros(1, np.float32))), ("bits",), ("answer",)),
    )
    return Graph("g", Value("image", Kind.FLOAT, (1, 1, 2)), nodes, "answer")


def test_answers_are_the_references() -> None:
    graph = _graph(0.3)
    golden = make_golden(graph)
    assert golden.output.shape == (2, 1)
    for number in range(2):
        image = golden_input(graph.input, golden.seed + number)
        np.testing.assert_array_equal(golden.output[number], reference.run(graph, image)[0])


def test_an_input_that_hangs_on_a_rounding_is_passed_over() -> None:
    """The bias makes the first seed's float exactly 0: the answer is +100 or -100 by chance."""
    image = golden_input(Value("image", Kind.FLOAT, (1, 1, 2)), 1)[0, 0, 0]
    unsteady = _graph(float(image[1] - image[0]))
    assert make_golden(unsteady).seed != 1
    assert make_golden(_graph(0.3)).seed == 1
