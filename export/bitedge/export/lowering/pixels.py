"""A first layer with ±1 weights on the dyadic grid reads the pixels themselves, as integers."""

from __future__ import annotations

import numpy as np

from bitedge.export.ir import limits, ops
from bitedge.export.ir.graph import Graph, Node, prune, splice
from bitedge.export.ir.shapes import infer

GRID = 256
"""Pixels enter as (2u - 255) / 256."""


def read_pixels(graph: Graph) -> Graph:
    """Replace normalize + ±1 convolution by `image_conv2d` and the division by 256, which is exact.

    With acc = Σ w·(2u - 255), the float convolution is acc / 256 in every order of summation, because each partial sum
    is an integer over 256 below 2^24.
    """
    producers, values = graph.producers(), infer(graph)
    changes: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        source = producers.get(node.inputs[0])
        if isinstance(node.op, ops.Conv2d) and source is not None and _is_exact(source.op, node.op):
            changes[node] = _image_layer(node, node.op, source.inputs[0], set(values))
    return prune(splice(graph, changes))


def on_grid(op: ops.Op) -> bool:
    """Tell whether a normalization is exactly (2u - 255) / 256 in every channel."""
    return (
        isinstance(op, ops.Normalize)
        and bool((op.scale == np.float32(2 / GRID)).all())
        and bool((op.offset == np.float32(-255 / GRID)).all())
    )


def _is_exact(source: ops.Op, op: ops.Conv2d) -> bool:
    taps = int(np.prod(op.weight.shape[1:]))
    return on_grid(source) and bool((np.abs(op.weight) == 1).all()) and taps <= limits.IMAGE_TAPS


def _image_layer(node: Node, op: ops.Conv2d, pixels: str, taken: set[str]) -> list[Node]:
    name = f"{node.outputs[0]}.sum"
    while name in taken:
        name += "'"
    outputs = len(op.weight)
    bias = op.epilogue.bias if isinstance(op.epilogue, ops.Affine) else np.zeros(outputs, np.float32)
    scale = ops.Affine(np.full(outputs, 1 / GRID, np.float32), bias)
    return [
        Node(ops.ImageConv2d(op.weight.astype(np.int8), op.window), (pixels,), (name,), node.layer),
        Node(ops.Elementwise(scale), (name,), node.outputs, node.layer),
    ]
