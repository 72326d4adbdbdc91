"""Small graphs of one binary layer each: every padding, stride, dilation and grouping, with or without a threshold."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitedge.export.formats.bundle import Bundle
from bitedge.export.ir import ops
from bitedge.export.ir.graph import Graph, Kind, Node, Value
from bitedge.export.verify.golden import Golden

WINDOWS = {
    "no padding": ops.Window((3, 3)),
    "same": ops.Window((3, 3), pads=(1, 1, 1, 1)),
    "symmetric, stride 2, even map": ops.Window((3, 3), (2, 2), (1, 1, 1, 1)),
    "tf_same, stride 2, even map": ops.Window((3, 3), (2, 2), (0, 0, 1, 1)),
    "five by five, stride 2": ops.Window((5, 5), (2, 2), (2, 2, 2, 2)),
    "top and left only": ops.Window((3, 3), pads=(1, 2, 0, 0)),
    "bottom and right only": ops.Window((3, 3), (2, 1), (0, 0, 2, 1)),
    "more than the kernel": ops.Window((2, 2), pads=(2, 3, 2, 2)),
    "dilated": ops.Window((3, 3), pads=(2, 2, 2, 2), dilation=(2, 2)),
    "dilated, unlike": ops.Window((3, 2), (1, 2), (2, 1, 1, 0), dilation=(2, 1)),
    "groups": ops.Window((3, 3), (2, 2), (1, 1, 1, 1), groups=2),
    "depthwise": ops.Window((3, 3), pads=(1, 1, 1, 1), groups=8),
    "pointwise": ops.Window((1, 1)),
    "pointwise, stride 2": ops.Window((1, 1), (2, 2)),
    "whole map": ops.Window((6, 8)),
}


def padded_graph(window: ops.Window, pad_value: int, *, threshold: bool, channels: int = 8, seed: int = 0) -> Graph:
    """Give sign, one binary convolution with thresholds (or scale, residual and sign), and numbers at the end."""
    random = np.random.default_rng(seed)
    shape = (6, 8, channels)
    weight = random.choice(np.array([-1, 1], np.int8), (16, *window.kernel, channels // window.groups))
    bound = weight[0].size
    rows, columns = window.output_size(6, 8)
    signs = Node(ops.Elementwise(ops.Affine(emit="bits")), ("image",), ("bits",), "sign")
    if threshold:
        # Every kind: ties in the middle, always +1, never +1.
        limits = random.integers(-bound // 2, bound // 2 + 1, 16).astype(np.int32)
        limits[:3] = (-bound - 1, bound + 1, 0)
        conv = ops.BinaryConv2d(weight, window, pad_value, ops.Threshold(limits))
        nodes = [signs, Node(conv, ("bits",), ("out",), "conv")]
    else:
        scale = random.normal(0, 1, 16).astype(np.float32)
        scale[0] = 0
        affine = ops.Affine(scale, random.normal(0, 1, 16).astype(np.float32), emit="bits")
        conv = ops.BinaryConv2d(weight, window, pad_value, affine)
        nodes = [signs, Node(conv, ("bits",), ("out",), "conv")]
    answer = ops.Elementwise(ops.Affine())
    return Graph(f"padded {rows}x{columns}", Value("image", Kind.FLOAT, shape), (*nodes, _last(answer)), "answer")


def _last(op: ops.Op) -> Node:
    return Node(op, ("out",), ("answer",), "answer")


def padded_images(channels: int = 8) -> NDArray[Any]:
    """Give images for these graphs, with exact zeros of either sign among their numbers."""
    images = np.random.default_rng(1).normal(0, 1, (3, 6, 8, channels)).astype(np.float32)
    images[0, 0, 0, :4] = (0.0, -0.0, 1e-30, -1e-30)
    return images


def bundle(graph: Graph, **known: Any) -> Bundle:
    """Give a bundle of a graph that is lowered already."""
    return Bundle(graph, graph, Golden(0, np.zeros((0, 1), np.float32)), **known)
