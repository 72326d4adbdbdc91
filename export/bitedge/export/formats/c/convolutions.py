"""Operators with an epilogue, in C."""

from __future__ import annotations

import numpy as np

from bitedge.export.formats.c.code import Code, window
from bitedge.export.formats.c.epilogues import write_epilogue
from bitedge.export.formats.c.memory import words, zero_padded
from bitedge.export.formats.c.weights import binary_weights, image_weights
from bitedge.export.ir import ops
from bitedge.export.ir.graph import Kind, Node


def binary_conv2d(code: Code, index: int, node: Node) -> None:
    """Bits against ±1 weights, with an inner loop for the window's length."""
    op = node.op
    assert isinstance(op, ops.BinaryConv2d)
    _, height, width, depth = op.weight.shape
    count = height * width * words(depth)
    dots, edge = f"bitedge_dots_{count}", f"bitedge_edge_dots_{count}"
    code.kernels[f"bitedge_dots {dots}"] = f"BITEDGE_DOTS({count})"
    if zero_padded(op):
        code.kernels[f"bitedge_dots {edge}"] = f"BITEDGE_EDGE_DOTS({count})"
    weights = code.array(f"weights_{index}", binary_weights(op))
    epilogue = write_epilogue(code, index, node)
    place = window(op.window, code.values[node.inputs[0]], code.values[node.outputs[0]])
    functions = f"{dots}, {edge if zero_padded(op) else 0}, {words(depth)}, {int(op.pad_value < 0)}"
    layer = f"binary_conv2d_layer layer_{index} = {{{place}, {weights}, {functions}, {epilogue}}}"
    code.layer_call(index, node, "binary_conv2d", layer)


def image_conv2d(code: Code, index: int, node: Node) -> None:
    """Pixels against ±1 weights, by looking up sums."""
    op = node.op
    assert isinstance(op, ops.ImageConv2d)
    weights = code.array(f"weights_{index}", image_weights(op))
    epilogue = write_epilogue(code, index, node)
    place = window(op.window, code.values[node.inputs[0]], code.values[node.outputs[0]])
    fours = -(-int(np.prod(op.weight.shape[1:])) // 4)
    code.kernels[f"bitedge_look_up bitedge_look_up_{fours}"] = f"BITEDGE_LOOK_UP({fours})"
    layer = f"image_conv2d_layer layer_{index} = {{{place}, bitedge_look_up_{fours}, {weights}, {epilogue}}}"
    code.layer_call(index, node, "image_conv2d", layer)


def conv2d(code: Code, index: int, node: Node) -> None:
    """A float convolution."""
    op = node.op
    assert isinstance(op, ops.Conv2d)
    half = op.weight.dtype == np.float16
    weights = code.array(f"weights_{index}", op.weight.view(np.uint16) if half else op.weight.astype(np.float32))
    epilogue = write_epilogue(code, index, node)
    place = window(op.window, code.values[node.inputs[0]], code.values[node.outputs[0]])
    stored = f"0, {weights}" if half else f"{weights}, 0"
    layer = f"conv2d_layer layer_{index} = {{{place}, {stored}, {epilogue}}}"
    code.layer_call(index, node, "conv2d_half" if half else "conv2d", layer)


def elementwise(code: Code, index: int, node: Node) -> None:
    """An epilogue alone."""
    height, width, channels = code.values[node.inputs[0]].shape
    epilogue = write_epilogue(code, index, node)
    bits = code.values[node.inputs[0]].kind is Kind.BITS
    layer = f"elementwise_layer layer_{index} = {{{height * width}, {channels}, {epilogue}}}"
    code.layer_call(index, node, "elementwise_bits" if bits else "elementwise", layer)
