"""Operators without an epilogue, in C."""

from __future__ import annotations

import numpy as np

from bitedge.export.formats.c import text
from bitedge.export.formats.c.code import Code, window
from bitedge.export.formats.c.weights import pack
from bitedge.export.ir import ops
from bitedge.export.ir.graph import Kind, Node


def max_pool2d(code: Code, index: int, node: Node) -> None:
    """Maximum over a window, of floats or bits."""
    op = node.op
    assert isinstance(op, ops.MaxPool2d)
    entering, made = code.values[node.inputs[0]], code.values[node.outputs[0]]
    code.constants.append(f"static const bitedge_window window_{index} = {window(op.window, entering, made)};\n")
    arguments = [f"&window_{index}"]
    if entering.kind is Kind.BITS:
        least = op.min_channels
        packed = None if least is None else pack(np.where(least, -1, 1))
        arguments.append("0" if packed is None else code.array(f"min_channels_{index}", packed))
    function = "max_pool2d_bits" if entering.kind is Kind.BITS else "max_pool2d"
    code.call(function, *arguments, code.pointer(node.inputs[0]), code.pointer(node.outputs[0]))


def avg_pool2d(code: Code, index: int, node: Node) -> None:
    """Mean over a window."""
    op = node.op
    assert isinstance(op, ops.AvgPool2d)
    entering, made = code.values[node.inputs[0]], code.values[node.outputs[0]]
    code.constants.append(f"static const bitedge_window window_{index} = {window(op.window, entering, made)};\n")
    top, left, bottom, right = op.window.pads
    below, beside = op.overhang
    counted = (entering.shape[0] + top + bottom - below, entering.shape[1] + left + right - beside)
    arguments = (f"&window_{index}", int(op.count_include_pad), *counted)
    code.call("avg_pool2d", *arguments, code.pointer(node.inputs[0]), code.pointer(node.outputs[0]))


def normalize(code: Code, index: int, node: Node) -> None:
    """Pixels to floats."""
    op = node.op
    assert isinstance(op, ops.Normalize)
    height, width, channels = code.values[node.inputs[0]].shape
    scale = code.array(f"scale_{index}", op.scale.astype(np.float32))
    offset = code.array(f"offset_{index}", op.offset.astype(np.float32))
    where = (code.pointer(node.inputs[0]), code.pointer(node.outputs[0]))
    code.call("normalize", height * width, channels, scale, offset, *where)


def layer_norm(code: Code, index: int, node: Node) -> None:
    """Layer normalization."""
    op = node.op
    assert isinstance(op, ops.LayerNorm)
    height, width, channels = code.values[node.inputs[0]].shape
    weight = code.array(f"weight_{index}", op.weight.astype(np.float32))
    bias = code.array(f"bias_{index}", op.bias.astype(np.float32))
    where = (code.pointer(node.inputs[0]), code.pointer(node.outputs[0]))
    code.call("layer_norm", height * width, channels, weight, bias, text.number(op.eps), *where)


def softmax(code: Code, _index: int, node: Node) -> None:
    """Softmax."""
    height, width, channels = code.values[node.inputs[0]].shape
    code.call("softmax", height * width, channels, code.pointer(node.inputs[0]), code.pointer(node.outputs[0]))


def group_norm(code: Code, index: int, node: Node) -> None:
    """Group normalization."""
    op = node.op
    assert isinstance(op, ops.GroupNorm)
    height, width, channels = code.values[node.inputs[0]].shape
    weight = code.array(f"weight_{index}", op.weight.astype(np.float32))
    bias = code.array(f"bias_{index}", op.bias.astype(np.float32))
    where = (code.pointer(node.inputs[0]), code.pointer(node.outputs[0]))
    code.call("group_norm", height * width, channels, op.groups, weight, bias, text.number(op.eps), *where)


def adaptive_avg_pool2d(code: Code, index: int, node: Node) -> None:
    """The window is only a carrier of both shapes."""
    entering, made = code.values[node.inputs[0]], code.values[node.outputs[0]]
    code.constants.append(f"static const bitedge_window window_{index} = {window(ops.Window(), entering, made)};\n")
    code.call("adaptive_avg_pool2d", f"&window_{index}", code.pointer(node.inputs[0]), code.pointer(node.outputs[0]))


def concat(code: Code, _index: int, node: Node) -> None:
    """One call per input."""
    made, first = code.values[node.outputs[0]], 0
    height, width, total = made.shape
    function = "concat_bits" if made.kind is Kind.BITS else "concat"
    for name in node.inputs:
        channels = code.values[name].shape[2]
        code.call(function, height * width, channels, first, total, code.pointer(name), code.pointer(made.name))
        first += channels


def gather_channels(code: Code, index: int, node: Node) -> None:
    """Channels in another order."""
    op = node.op
    assert isinstance(op, ops.GatherChannels)
    entering, made = code.values[node.inputs[0]], code.values[node.outputs[0]]
    height, width, channels = entering.shape
    chosen = code.array(f"index_{index}", op.index.astype(np.int32))
    function = "gather_channels_bits" if made.kind is Kind.BITS else "gather_channels"
    where = (code.pointer(entering.name), code.pointer(made.name))
    code.call(function, height * width, channels, chosen, made.shape[2], *where)
