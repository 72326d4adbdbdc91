"""Merge elementwise nodes into the epilogue of the node before them, as far as the order of steps allows.

The steps of an epilogue are 1 scale and bias, 2 residual, 3 activation, 4 sign. A node merges into its producer when
its first step comes after the producer's last, and nobody else reads the value in between (a sign needs only that
the producer can give floats and bits at once). Each step rounds as it did before, so nothing changes in the last bit,
but for one case: the bias of a float convolution is folded into a scale that follows it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bitedge.export.ir import ops, reference
from bitedge.export.ir.graph import Graph, Node, splice

SCALE, RESIDUAL, ACTIVATION, EMIT = 1, 2, 3, 4


def fuse_epilogues(graph: Graph) -> Graph:
    """Give the graph with every elementwise node merged that can be."""
    changed = True
    while changed:
        changed = False
        for node in graph.nodes:
            merged = _merge_into_producer(graph, node) if isinstance(node.op, ops.Elementwise) else None
            if merged is not None:
                producer, fused = merged
                graph = splice(graph, {producer: [], node: [fused]})
                changed = True
                break
    return graph


def _merge_into_producer(graph: Graph, node: Node) -> tuple[Node, Node] | None:
    producers = graph.producers()
    candidates = [(producers[name], index) for index, name in enumerate(node.inputs) if name in producers]
    # Of two summands, take in the other one where the convolution is: it is the costlier to read back.
    candidates.sort(key=lambda pair: (isinstance(pair[0].op, ops.Elementwise), -graph.nodes.index(pair[0])))
    for producer, index in candidates:
        fused = _merge(graph, producer, node, index)
        if fused is not None:
            return producer, fused
    return None


def _merge(graph: Graph, producer: Node, node: Node, index: int) -> Node | None:
    first, second = ops.epilogue_of(producer.op), ops.epilogue_of(node.op)
    if not isinstance(first, ops.Affine) or not isinstance(second, ops.Affine) or first.emit != "float":
        return None
    shared = graph.output == producer.outputs[0] or len(graph.consumers()[producer.outputs[0]]) > 1
    steps = _steps(node, second)
    if shared and (steps != [EMIT] or second.emit != "bits"):
        return None
    if index == 1 and SCALE in steps:
        return None
    joined = _join(producer, first, _steps(producer, first), second, steps)
    if joined is None:
        return None
    others = tuple(name for position, name in enumerate(node.inputs) if position != index)
    outputs = node.outputs
    if shared:
        joined, outputs = replace(joined, emit="float+bits"), (*producer.outputs, *node.outputs)
    op = producer.op
    assert isinstance(op, ops.Conv2d | ops.BinaryConv2d | ops.ImageConv2d | ops.Elementwise)
    names = (*producer.absorbed, node.layer, *node.absorbed)
    absorbed = tuple(dict.fromkeys(name for name in names if name != producer.layer and steps != [EMIT]))
    return Node(
        replace(op, epilogue=joined),
        (*producer.inputs, *others),
        outputs,
        producer.layer,
        absorbed or producer.absorbed,
    )


def _steps(node: Node, epilogue: ops.Affine) -> list[int]:
    present = {
        SCALE: epilogue.scale is not None,
        RESIDUAL: len(node.inputs) == 2,
        ACTIVATION: epilogue.activation != "none",
        EMIT: epilogue.emit != "float",
    }
    return [step for step, there in present.items() if there]


def _join(
    producer: Node, first: ops.Affine, done: list[int], second: ops.Affine, steps: list[int]
) -> ops.Affine | None:
    if not steps or not done or steps[0] > done[-1]:
        scale, bias = (first.scale, first.bias) if SCALE in done else (second.scale, second.bias)
    elif done == [SCALE] and steps[0] == SCALE:
        composed = _compose(producer.op, first, second)
        if composed is None:
            return None
        scale, bias = composed
    else:
        return None
    active = second if ACTIVATION in steps else first
    return ops.Affine(scale, bias, active.activation, active.slope, second.emit)


def _compose(
    op: ops.Op, first: ops.Affine, second: ops.Affine
) -> tuple[NDArray[np.float32], NDArray[np.float32]] | None:
    """Two scalings in one: exactly when the first only divides by a power of two, else only after a float product."""
    if first.scale is None or first.bias is None or second.scale is None or second.bias is None:
        return None
    power = bool((np.frexp(first.scale)[0] == 0.5).all())
    scale = first.scale * second.scale
    tiny = bool((np.abs(scale[scale != 0]) < np.finfo(np.float32).tiny).any())
    if not power or tiny or (first.bias.any() and not isinstance(op, ops.Conv2d)):
        return None
    return scale, reference.fma(first.bias, second.scale, second.bias)
