"""The graph's own rules: names, order, pruning, shapes and kinds."""

from __future__ import annotations

import numpy as np
import pytest

from bitedge.export.errors import ExportError
from bitedge.export.ir import ops
from bitedge.export.ir.graph import Graph, Kind, Node, Value, prune, splice
from bitedge.export.ir.shapes import infer

INPUT = Value("x", Kind.FLOAT, (6, 8, 4))


def graph(*nodes: Node, output: str | None = None, source: Value = INPUT) -> Graph:
    return Graph("g", source, nodes, output or nodes[-1].outputs[-1])


def test_a_value_must_be_made_before_it_is_read() -> None:
    with pytest.raises(ExportError, match="relu of 'act' reads 'y' before it is made"):
        graph(Node(ops.Relu(), ("y",), ("z",), "act"))


def test_names_are_unique() -> None:
    with pytest.raises(ExportError, match="two values are named 'x'"):
        graph(Node(ops.Relu(), ("x",), ("x",)))


def test_the_answer_must_exist() -> None:
    with pytest.raises(ExportError, match="the answer 'z' is not made by any node"):
        graph(Node(ops.Relu(), ("x",), ("y",)), output="z")


def test_prune_drops_what_nobody_needs() -> None:
    dead = Node(ops.Sign(), ("x",), ("unused",))
    assert [node.outputs for node in prune(graph(dead, Node(ops.Relu(), ("x",), ("y",)))).nodes] == [("y",)]


def test_splice_keeps_the_order() -> None:
    first, second = Node(ops.Relu(), ("x",), ("y",)), Node(ops.Relu(), ("y",), ("z",))
    between = [Node(ops.Sign(), ("x",), ("s",)), Node(ops.Relu(), ("x",), ("y",))]
    assert [node.outputs[0] for node in splice(graph(first, second), {first: between}).nodes] == ["s", "y", "z"]


def test_a_frozen_graph_cannot_be_changed() -> None:
    made = graph(Node(ops.Relu(), ("x",), ("y",)))
    with pytest.raises(AttributeError):
        made.output = "x"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (ops.Window((3, 3)), (4, 6)),
        (ops.Window((3, 3), pads=(1, 1, 1, 1)), (6, 8)),
        (ops.Window((3, 3), (2, 2), (0, 0, 1, 1)), (3, 4)),
        (ops.Window((3, 2), (1, 3), dilation=(2, 1)), (2, 3)),
        (ops.Window((1, 1), (2, 2)), (3, 4)),
    ],
)
def test_size_of_a_convolution(window: ops.Window, expected: tuple[int, int]) -> None:
    weight = np.ones((5, *window.kernel, 4), np.float32)
    value = infer(graph(Node(ops.Conv2d(weight, window), ("x",), ("y",))))["y"]
    assert value == Value("y", Kind.FLOAT, (*expected, 5))


def test_kinds() -> None:
    weight = np.ones((5, 1, 1, 4), np.int8)
    both = ops.Affine(emit="float+bits")
    made = graph(
        Node(ops.Sign(), ("x",), ("bits",)),
        Node(ops.BinaryConv2d(weight), ("bits",), ("acc",)),
        Node(ops.BinaryConv2d(weight, epilogue=ops.Threshold(np.zeros(5, np.int32))), ("bits",), ("thresholded",)),
        Node(ops.BinaryConv2d(weight, epilogue=both), ("bits",), ("f", "b")),
        Node(ops.MaxPool2d(ops.Window((2, 2), (2, 2))), ("thresholded",), ("pooled",)),
        Node(ops.Flatten(), ("pooled",), ("flat",)),
    )
    kinds = {name: value.kind for name, value in infer(made).items()}
    assert kinds == {
        "x": Kind.FLOAT,
        "bits": Kind.BITS,
        "acc": Kind.INT,
        "thresholded": Kind.BITS,
        "f": Kind.FLOAT,
        "b": Kind.BITS,
        "pooled": Kind.BITS,
        "flat": Kind.BITS,
    }
    assert infer(made)["flat"].shape == (1, 1, 60)


BITS = Value("x", Kind.BITS, (6, 8, 4))


@pytest.mark.parametrize(
    ("node", "source", "message"),
    [
        (
            Node(ops.BinaryConv2d(np.ones((1, 1, 1, 4), np.int8)), ("x",), ("y",), "L"),
            INPUT,
            "binary_conv2d takes bits",
        ),
        (Node(ops.Normalize(np.ones(4, "f4"), np.ones(4, "f4")), ("x",), ("y",), "L"), INPUT, "takes uint8"),
        (
            Node(ops.Conv2d(np.ones((2, 1, 1, 3), "f4")), ("x",), ("y",), "L"),
            INPUT,
            "do not fit an input of 4 channels",
        ),
        (Node(ops.Conv2d(np.ones((2, 9, 9, 4), "f4"), ops.Window((9, 9))), ("x",), ("y",), "L"), INPUT, "too small"),
        (
            Node(ops.MaxPool2d(ops.Window((2, 2), (2, 2), (2, 0, 0, 0))), ("x",), ("y",), "L"),
            INPUT,
            "lies wholly in the padding",
        ),
        (
            Node(
                ops.Conv2d(np.ones((2, 1, 1, 4), "f4"), ops.Window((1, 1), pads=(70_000, 0, 0, 0))), ("x",), ("y",), "L"
            ),
            INPUT,
            "outside the limits",
        ),
        (
            Node(
                ops.BinaryConv2d(np.ones((2, 1, 1, 4), np.int8), epilogue=ops.Threshold(np.zeros(2, np.int32))),
                ("x", "x"),
                ("y",),
                "L",
            ),
            BITS,
            "a threshold takes no residual",
        ),
        (Node(ops.Relu(), ("x",), ("y", "z"), "L"), INPUT, "makes 1 values, 2 were named"),
    ],
)
def test_a_graph_that_does_not_fit_is_refused(node: Node, source: Value, message: str) -> None:
    with pytest.raises(ExportError, match=f"^L: .*{message}"):
        infer(graph(node, source=source))


def test_add_needs_one_shape() -> None:
    pool = Node(ops.MaxPool2d(ops.Window((2, 2))), ("x",), ("p",))
    with pytest.raises(ExportError, match="cannot add the shapes"):
        infer(graph(pool, Node(ops.Add(), ("x", "p"), ("y",), "L")))
