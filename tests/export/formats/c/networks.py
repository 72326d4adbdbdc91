"""Graphs that the tests of the format `c` share."""

from __future__ import annotations

from typing import Any

import numpy as np

from bitedge.export.formats.bundle import Bundle
from bitedge.export.ir import ops
from bitedge.export.ir.graph import Graph, Kind, Node, Value
from bitedge.export.verify.golden import reference_golden

SHAPE = (5, 4, 6)
_RANDOM = np.random.default_rng(5)
_SCALE, _BIAS, _SLOPE = _RANDOM.normal(0, 1, (3, 6)).astype(np.float32)


def bundle_of(graph: Graph, **more: Any) -> Bundle:
    """Make a bundle of a lowered graph."""
    return Bundle(graph, graph, reference_golden(graph), **more)


def float_graph(*nodes: Node) -> Graph:
    """Give a graph on a float map; its answer is the last value."""
    return Graph("floats", Value("image", Kind.FLOAT, SHAPE), nodes, nodes[-1].outputs[-1])


def _steps(*steps: ops.Step, inputs: tuple[str, ...] = (), emit: Any = "float") -> Node:
    op = ops.Elementwise(ops.Steps(steps, emit))
    return Node(op, ("image", *inputs), ("y",), "steps")


def _one(kind: Any) -> tuple[Node, ...]:
    return (_steps(ops.Step(kind)),)


def _plain(op: ops.Op, *inputs: str) -> Node:
    return Node(op, inputs or ("image",), ("y",), "plain")


_SIGN = Node(ops.Elementwise(ops.Affine(emit="bits")), ("image",), ("bits",), "sign")
_OTHER = Node(ops.Elementwise(ops.Affine(_SCALE, _BIAS)), ("image",), ("other",), "other")
_WINDOW = ops.Window((3, 2), (2, 1), (1, 0, 1, 1))


def _back(name: str) -> Node:
    return Node(ops.Elementwise(ops.Affine()), (name,), ("answer",), "back")


V2_STEPS: dict[str, tuple[Node, ...]] = {
    **{kind: _one(kind) for kind in ("relu", "hardsigmoid", "hardswish", "sigmoid", "tanh", "silu")},
    "clamp": (_steps(ops.Step("clamp", min=-1.5, max=2)),),
    "prelu": (_steps(ops.Step("prelu", slope=_SLOPE)),),
    "prelu, one slope": (_steps(ops.Step("prelu", slope=_SLOPE[:1])),),
    "add, then scale": (_OTHER, _steps(ops.Step("add"), ops.Step("fma", _SCALE, _BIAS), inputs=("other",))),
    "add bits": (_SIGN, _steps(ops.Step("add"), inputs=("bits",))),
    "two inputs": (
        _OTHER,
        _steps(ops.Step("multiply"), ops.Step("relu"), ops.Step("add"), inputs=("other", "image")),
    ),
    "gate": (
        Node(ops.AdaptiveAvgPool2d((1, 1)), ("image",), ("mean",), "mean"),
        Node(ops.Elementwise(ops.Steps((ops.Step("hardsigmoid"),))), ("mean",), ("gate",), "gate"),
        _steps(ops.Step("multiply"), inputs=("gate",)),
    ),
    "concat": (_OTHER, _plain(ops.Concat(), "image", "other", "image")),
    "concat of bits": (_SIGN, _plain(ops.Concat(), *["bits"] * 12), _back("y")),
    "gather": (_plain(ops.GatherChannels(np.array([5, -1, 0, 0, 3], np.int32))),),
    "gather bits": (_SIGN, _plain(ops.GatherChannels(np.arange(40, dtype=np.int32) % 6), "bits"), _back("y")),
    "group norm": (_plain(ops.GroupNorm(3, _SCALE, _BIAS, 1e-5)),),
    "layer norm": (_plain(ops.LayerNorm(_SCALE, _BIAS, 1e-5)),),
    "softmax": (_plain(ops.Softmax()),),
    "adaptive": (_plain(ops.AdaptiveAvgPool2d((3, 3))),),
    "mean": (_plain(ops.AvgPool2d(ops.Window((3, 3), (2, 2), (1, 1, 1, 1)), False)),),
    "mean with overhang": (_plain(ops.AvgPool2d(ops.Window((3, 3), (2, 2), (1, 1, 2, 2)), True, (1, 1))),),
    "maximum": (_plain(ops.MaxPool2d(_WINDOW)),),
    "minimum of bits": (
        _SIGN,
        _plain(ops.MaxPool2d(_WINDOW, np.array([True, False] * 3)), "bits"),
        _back("y"),
    ),
}
"""Graphs by what they are about: what is exact in float32 must be so to the bit."""
