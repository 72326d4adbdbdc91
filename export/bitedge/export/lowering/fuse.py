"""Merge elementwise nodes into the epilogue of the node before them.

A node merges into its producer when nobody else reads the value in between (a sign needs only that the producer can
give floats and bits at once). Its steps follow the producer's, each rounds as it did before, so nothing changes in the
last bit, but for one case: two scalings behind a float convolution become one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from bitedge.export.ir import limits, ops, reference
from bitedge.export.ir.epilogue import from_steps, steps_of
from bitedge.export.ir.graph import Graph, Node, Shape, splice
from bitedge.export.ir.shapes import infer


def fuse_epilogues(graph: Graph) -> Graph:
    """Give the graph with every elementwise node merged that can be."""
    shapes = {name: value.shape for name, value in infer(graph).items()}  # merging changes no value's shape
    changed = True
    while changed:
        changed = False
        for node in graph.nodes:
            merged = _merge_into_producer(graph, shapes, node) if isinstance(node.op, ops.Elementwise) else None
            if merged is not None:
                producer, fused = merged
                # Where others read the producer too, they may come before this node; it has no other input then.
                early = producer.outputs[0] in fused.outputs
                graph = splice(graph, {producer: [fused] if early else [], node: [] if early else [fused]})
                changed = True
                break
    return graph


def _merge_into_producer(graph: Graph, shapes: Mapping[str, Shape], node: Node) -> tuple[Node, Node] | None:
    producers = graph.producers()
    candidates = [(producers[name], index) for index, name in enumerate(node.inputs) if name in producers]
    # Of two summands, take in the other one where the convolution is: it is the costlier to read back.
    candidates.sort(key=lambda pair: (isinstance(pair[0].op, ops.Elementwise), -graph.nodes.index(pair[0])))
    for producer, index in candidates:
        fused = _merge(graph, shapes, producer, node, index)
        if fused is not None:
            return producer, fused
    return None


def _merge(graph: Graph, shapes: Mapping[str, Shape], producer: Node, node: Node, index: int) -> Node | None:
    first, second = ops.epilogue_of(producer.op), ops.epilogue_of(node.op)
    if not isinstance(first, ops.Affine | ops.Steps) or not isinstance(second, ops.Affine | ops.Steps):
        return None
    if first.emit != "float":
        return None
    shared = graph.output == producer.outputs[0] or len(graph.consumers()[producer.outputs[0]]) > 1
    steps = steps_of(second, len(node.inputs))
    if shared and (steps or second.emit != "bits"):
        return None
    if index > 0 and not _is_first_operand(shapes, node, steps, index):
        return None
    joined = _join(producer.op, steps_of(first, len(producer.inputs)), steps)
    if len(joined) > limits.STEPS:
        return None
    # The first operand takes the place of the producer's value if they change places: sum and product do not mind.
    others = tuple(name for position, name in enumerate(node.inputs) if position != index)
    emit, outputs = second.emit, node.outputs
    if shared:
        emit, outputs = "float+bits", (*producer.outputs, *node.outputs)
    op = producer.op
    assert isinstance(op, ops.Conv2d | ops.BinaryConv2d | ops.ImageConv2d | ops.Elementwise)
    names = (*producer.absorbed, node.layer, *node.absorbed)
    absorbed = tuple(dict.fromkeys(name for name in names if name != producer.layer and steps))
    return Node(
        replace(op, epilogue=from_steps(joined, emit)),
        (*producer.inputs, *others),
        outputs,
        producer.layer,
        absorbed or producer.absorbed,
    )


def _is_first_operand(shapes: Mapping[str, Shape], node: Node, steps: tuple[ops.Step, ...], index: int) -> bool:
    """Tell whether the first step adds or multiplies this input, of the same shape: then the two can change places."""
    same = shapes[node.inputs[0]] == shapes[node.inputs[index]]
    return index == 1 and steps[0].reads and same and node.inputs[0] != node.inputs[index]


def _join(op: ops.Op, done: tuple[ops.Step, ...], steps: tuple[ops.Step, ...]) -> tuple[ops.Step, ...]:
    """Give the steps of both, two scalings in one where that is exact or the product was rounded anyway."""
    if len(done) == 1 and done[0].kind == "fma" and steps and steps[0].kind == "fma":
        composed = _compose(op, done[0], steps[0])
        if composed is not None:
            return (composed, *steps[1:])
    return (*done, *steps)


def _compose(op: ops.Op, first: ops.Step, second: ops.Step) -> ops.Step | None:
    """Two scalings in one: after a float product always, else only if the first multiplies by a power of two."""
    assert first.scale is not None
    assert first.bias is not None
    assert second.scale is not None
    assert second.bias is not None
    scale = first.scale * second.scale
    if bool((np.abs(scale[scale != 0]) < np.finfo(np.float32).tiny).any()) or not np.isfinite(scale).all():
        return None
    power = bool((np.frexp(first.scale)[0] == 0.5).all())
    if not isinstance(op, ops.Conv2d) and (not power or first.bias.any()):
        return None
    return ops.Step("fma", scale=scale, bias=reference.fma(first.bias, second.scale, second.bias))
