"""Fold explicit padding into the convolution or pooling that reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from bitedge.export.errors import ExportError
from bitedge.export.ir import ops
from bitedge.export.ir.graph import Graph, Node, prune, splice


def fold_pads(graph: Graph) -> Graph:
    """Give a graph without `pad` nodes, or refuse the one that nothing can absorb."""
    while True:
        found = next((node for node in graph.nodes if isinstance(node.op, ops.Pad)), None)
        if found is None:
            return graph
        readers = graph.consumers()[found.outputs[0]]
        if graph.output == found.outputs[0]:
            raise ExportError(f"layer {found.layer!r}: padding cannot be the answer of a network")
        changes: dict[Node, list[Node]] = {}
        for reader in readers:
            changes[reader] = _rule(found, reader)(graph, found, reader)
        graph = prune(splice(graph, changes))


def _rule(pad: Node, reader: Node) -> Callable[[Graph, Node, Node], list[Node]]:
    if type(reader.op) not in _RULES:
        raise _refusal(pad, reader, "only convolutions and poolings take padding")
    return _RULES[type(reader.op)]


def _refusal(pad: Node, reader: Node, why: str) -> ExportError:
    assert isinstance(pad.op, ops.Pad)
    return ExportError(
        f"layer {pad.layer!r}: padding with {pad.op.value:g} cannot be folded into {reader.layer!r} "
        f"({reader.op.name}): {why}"
    )


def _sum(a: tuple[int, int, int, int], b: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3])


def _into_sign(_graph: Graph, pad: Node, reader: Node) -> list[Node]:
    """sign(pad(x, v)) = pad(sign(x), sign(v))."""
    assert isinstance(pad.op, ops.Pad)
    bits = f"{reader.outputs[0]}.unpadded"
    value = 1.0 if pad.op.value >= 0 else -1.0
    return [
        Node(ops.Sign(), pad.inputs, (bits,), reader.layer),
        Node(ops.Pad(pad.op.pads, value), (bits,), reader.outputs, pad.layer),
    ]


def _into_pad(_graph: Graph, pad: Node, reader: Node) -> list[Node]:
    assert isinstance(pad.op, ops.Pad)
    assert isinstance(reader.op, ops.Pad)
    if pad.op.value != reader.op.value:
        raise _refusal(pad, reader, f"the outer padding is {reader.op.value:g}")
    return [Node(ops.Pad(_sum(pad.op.pads, reader.op.pads), pad.op.value), pad.inputs, reader.outputs, pad.layer)]


def _into_binary(_graph: Graph, pad: Node, reader: Node) -> list[Node]:
    assert isinstance(pad.op, ops.Pad)
    assert isinstance(reader.op, ops.BinaryConv2d)
    op, value = reader.op, pad.op.value
    if value not in (-1.0, 0.0, 1.0):
        raise _refusal(pad, reader, "a binary layer is padded with 0, 1 or -1")
    if any(op.window.pads) and op.pad_value != value:
        raise _refusal(pad, reader, f"the layer itself pads with {op.pad_value}")
    window = replace(op.window, pads=_sum(op.window.pads, pad.op.pads))
    return [replace(reader, op=replace(op, window=window, pad_value=int(value)), inputs=pad.inputs)]


def _into_conv(_graph: Graph, pad: Node, reader: Node) -> list[Node]:
    """A float convolution pads with 0; for another value v, conv(pad(x, v)) = conv(pad(x - v, 0)) + v·Σw."""
    assert isinstance(pad.op, ops.Pad)
    assert isinstance(reader.op, ops.Conv2d)
    op, value = reader.op, np.float32(pad.op.value)
    window = replace(op.window, pads=_sum(op.window.pads, pad.op.pads))
    if value == 0:
        return [replace(reader, op=replace(op, window=window), inputs=pad.inputs)]
    if any(op.window.pads) or not np.isfinite(value):
        raise _refusal(pad, reader, "a float layer is padded with one finite value")
    channels = op.weight.shape[3] * window.groups
    shift = ops.Affine(np.ones(channels, np.float32), np.full(channels, -value, np.float32))
    total = op.weight.astype(np.float64).sum(axis=(1, 2, 3)) * value
    if isinstance(op.epilogue, ops.Affine) and op.epilogue.bias is not None:
        total = total + op.epilogue.bias
    epilogue = ops.Affine(np.ones(len(total), np.float32), total.astype(np.float32))
    shifted = f"{reader.outputs[0]}.shifted"
    return [
        Node(ops.Elementwise(shift), pad.inputs, (shifted,), reader.layer),
        replace(reader, op=replace(op, window=window, epilogue=epilogue), inputs=(shifted,)),
    ]


def _into_max_pool(graph: Graph, pad: Node, reader: Node) -> list[Node]:
    """Padded positions never win: so the value must be one that cannot."""
    assert isinstance(pad.op, ops.Pad)
    assert isinstance(reader.op, ops.MaxPool2d)
    source = graph.producers().get(pad.inputs[0])
    lowest = _lowest(source.op) if source is not None else -np.inf
    if pad.op.value > lowest:
        raise _refusal(pad, reader, f"a maximum could take the padding; pad with {lowest:g} or in the pooling layer")
    window = replace(reader.op.window, pads=_sum(reader.op.window.pads, pad.op.pads))
    return [replace(reader, op=replace(reader.op, window=window), inputs=pad.inputs)]


def _lowest(op: ops.Op) -> float:
    """Give the smallest number that a layer can give."""
    if isinstance(op, ops.Clamp):
        return op.min
    if isinstance(op, ops.Function) and op.kind in ("sigmoid", "hardsigmoid"):
        return 0.0
    return {ops.Sign: -1.0, ops.Relu: 0.0}.get(type(op), -np.inf)


def _into_avg_pool(_graph: Graph, pad: Node, reader: Node) -> list[Node]:
    assert isinstance(pad.op, ops.Pad)
    assert isinstance(reader.op, ops.AvgPool2d)
    op = reader.op
    if pad.op.value != 0 or (any(op.window.pads) and not op.count_include_pad):
        raise _refusal(pad, reader, "an average counts zeros only")
    window = replace(op.window, pads=_sum(op.window.pads, pad.op.pads))
    if any(op.overhang):
        raise _refusal(pad, reader, "ceil_mode has a partial window")
    return [replace(reader, op=ops.AvgPool2d(window, count_include_pad=True), inputs=pad.inputs)]


_RULES: Mapping[type[ops.Op], Callable[[Graph, Node, Node], list[Node]]] = {
    ops.Sign: _into_sign,
    ops.Pad: _into_pad,
    ops.BinaryConv2d: _into_binary,
    ops.Conv2d: _into_conv,
    ops.MaxPool2d: _into_max_pool,
    ops.AvgPool2d: _into_avg_pool,
}
