"""Picking and permuting channels moves into the weights next to it, where there are any."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitedge.export.ir import ops
from bitedge.export.ir.graph import Graph, Node, prune, splice
from bitedge.export.ir.shapes import infer
from bitedge.export.lowering.arithmetic import POINTWISE

Index = NDArray[np.int32]


def fold_gathers(graph: Graph) -> Graph:
    """Fold every gather into the convolution before it, or into all convolutions behind it, or into another gather."""
    changed = True
    while changed:
        changed = False
        for node in graph.nodes:
            if not isinstance(node.op, ops.GatherChannels):
                continue
            folded = _compose(graph, node) or _into_source(graph, node) or _into_readers(graph, node)
            if folded is not None:
                graph = prune(splice(graph, folded))
                changed = True
                break
    return graph


def _compose(graph: Graph, node: Node) -> dict[Node, list[Node]] | None:
    """Two gathers in a row are one; one that changes nothing is none."""
    assert isinstance(node.op, ops.GatherChannels)
    source = graph.producers().get(node.inputs[0])
    if source is None or not isinstance(source.op, ops.GatherChannels):
        return None
    inner, outer = source.op.index, node.op.index
    index = np.where(outer < 0, np.int32(-1), inner[outer])
    return {node: [replace(node, op=ops.GatherChannels(index), inputs=source.inputs)]}


def _into_source(graph: Graph, node: Node) -> dict[Node, list[Node]] | None:
    """gather(f(conv(x))) = f'(conv'(x)) with picked outputs, if nobody else reads what lies in between."""
    assert isinstance(node.op, ops.GatherChannels)
    producers, consumers, index = graph.producers(), graph.consumers(), node.op.index
    if (index < 0).any():
        return None
    chain: list[Node] = []
    name = node.inputs[0]
    while True:
        source = producers.get(name)
        if source is None or len(consumers[name]) > 1 or name == graph.output:
            return None
        chain.append(source)
        if isinstance(source.op, ops.Conv2d | ops.BinaryConv2d | ops.ImageConv2d):
            break
        if not isinstance(source.op, (*POINTWISE, ops.Sign, ops.MaxPool2d, ops.AvgPool2d, ops.AdaptiveAvgPool2d)):
            return None
        name = source.inputs[0]
    if source.op.window.groups > 1 or (ops.epilogue_of(source.op) is not None and len(source.inputs) > 1):
        return None
    # What lies in between has other channels now than torch's tensors, so it must not bear their names.
    names = {each.outputs[0]: f"{each.outputs[0]}.gathered" for each in chain[1:]} | {
        chain[0].outputs[0]: node.outputs[0]
    }
    changes: dict[Node, list[Node]] = {node: []}
    for each in chain:
        inputs = tuple(names.get(name, name) for name in each.inputs)
        changes[each] = [replace(each, op=_pick(each.op, index), inputs=inputs, outputs=(names[each.outputs[0]],))]
    return changes


def _pick(op: ops.Op, index: Index) -> Any:
    """Give the layer for these channels of its output only."""
    if isinstance(op, ops.Conv2d | ops.BinaryConv2d | ops.ImageConv2d):
        epilogue = op.epilogue
        if isinstance(epilogue, ops.Affine) and epilogue.scale is not None and epilogue.bias is not None:
            epilogue = replace(epilogue, scale=epilogue.scale[index], bias=epilogue.bias[index])
        return replace(op, weight=op.weight[index], epilogue=epilogue)  # type: ignore[arg-type]
    if isinstance(op, ops.BatchNorm):
        picked = {name: getattr(op, name)[index] for name in ("mean", "variance", "weight", "bias")}
        return replace(op, **picked)
    for kind, name in ((ops.Scale, "scale"), (ops.Shift, "bias"), (ops.Prelu, "slope")):
        if isinstance(op, kind) and getattr(op, name).size > 1:
            return replace(op, **{name: getattr(op, name)[index]})
    return op


def _into_readers(graph: Graph, node: Node) -> dict[Node, list[Node]] | None:
    """conv(gather(x)) = conv'(x) with permuted inputs, for all readers of a permutation."""
    assert isinstance(node.op, ops.GatherChannels)
    index, channels = node.op.index, infer(graph)[node.inputs[0]].shape[2]
    if not np.array_equal(np.sort(index), np.arange(channels)) or node.outputs[0] == graph.output:
        return None
    if np.array_equal(index, np.arange(channels)):
        short = {node.outputs[0]: node.inputs[0]}
        readers = graph.consumers()[node.outputs[0]]
        return {r: [replace(r, inputs=tuple(short.get(n, n) for n in r.inputs))] for r in readers} | {node: []}
    inverse = np.argsort(index)
    changes: dict[Node, list[Node]] = {node: []}
    for reader in graph.consumers()[node.outputs[0]]:
        op = reader.op
        if isinstance(op, ops.Conv2d | ops.BinaryConv2d) and op.window.groups == 1 and reader.inputs == node.outputs:
            permuted = replace(op, weight=op.weight[..., inverse])  # type: ignore[arg-type]
            changes[reader] = [replace(reader, op=permuted, inputs=node.inputs)]
        else:
            return None
    return changes
