"""Buffers of a network in C: how large every value is, how long it lives, and what may be written over."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bitedge.export.formats.c.arena import Arena, Buffer, place
from bitedge.export.ir import ops
from bitedge.export.ir.graph import Graph, Kind, Node, Value

WORD = 32
_POINTWISE = (ops.Elementwise, ops.LayerNorm, ops.Softmax)
_WINDOWED = (ops.BinaryConv2d, ops.Conv2d, ops.MaxPool2d, ops.AvgPool2d)


def words(bits: int) -> int:
    """Give the number of 32-bit words that hold so many bits."""
    return -(-bits // WORD)


def pixel_words(value: Value) -> int:
    """Give the number of words of one pixel."""
    return words(value.shape[2]) if value.kind is Kind.BITS else value.shape[2]


def value_words(value: Value) -> int:
    """Give the number of words of a whole value."""
    return value.shape[0] * value.shape[1] * pixel_words(value)


def scratch_words(op: ops.Op) -> int:
    """Give the number of words that a node needs beside its inputs and outputs."""
    if isinstance(op, ops.BinaryConv2d):
        _, height, width, depth = op.weight.shape
        return height * width * words(depth) * (2 if zero_padded(op) else 1)
    if isinstance(op, ops.ImageConv2d):
        fours = -(-int(np.prod(op.weight.shape[1:])) // 4)
        return fours * (4 + 16) // 2
    return 0


def zero_padded(op: ops.BinaryConv2d) -> bool:
    """Tell whether some window of a binary convolution hangs over an edge that is padded with 0."""
    return op.pad_value == 0 and any(op.window.pads)


def plan(graph: Graph, values: Mapping[str, Value]) -> Arena:
    """Place every value but the image and the answer, which are the caller's, and the scratch memory of every node."""
    last = {name: index for index, node in enumerate(graph.nodes) for name in node.inputs}
    outside = {graph.input.name, graph.output}
    buffers: list[Buffer] = []
    leads: dict[tuple[str, str], int] = {}
    for index, node in enumerate(graph.nodes):
        if size := scratch_words(node.op):
            buffers.append(Buffer(scratch_name(index), size, index, index))
        for name in node.outputs:
            if name in outside:
                continue
            buffers.append(Buffer(name, value_words(values[name]), index, last.get(name, index)))
            for entering in {each for each in node.inputs if last[each] == index} - outside:
                if (lead := _lead(node, entering, values[entering], values[name])) is not None:
                    leads[name, entering] = lead
    return place(buffers, leads)


def scratch_name(index: int) -> str:
    """Name the scratch memory of a node; no value is named like it."""
    return f"scratch of node {index}"


def _lead(node: Node, name: str, entering: Value, made: Value) -> int | None:
    """Give the words by which an output must start before an input that it may write over; None if it may not."""
    leads = []
    for position, read in enumerate(node.inputs):
        if read != name:
            continue
        if position > 0 or isinstance(node.op, _POINTWISE):
            leads.append(_pointwise_lead(node, entering, made))
        elif isinstance(node.op, _WINDOWED):
            leads.append(window_lead(node.op.window, entering, made))
        else:
            return None
    return None if None in leads else max(lead for lead in leads if lead is not None)


def _pointwise_lead(node: Node, entering: Value, made: Value) -> int | None:
    """Blocks of 32 channels are read, then written; so writing may never be ahead of reading after any of them."""
    groups = node.op.window.groups if isinstance(node.op, ops.BinaryConv2d | ops.ImageConv2d) else 1
    if entering.shape != made.shape or ((made.shape[2] // groups) % WORD and groups > 1):
        return None
    channels = np.minimum(np.arange(WORD, made.shape[2] + WORD, WORD), made.shape[2])
    blocks = np.arange(1, len(channels) + 1)
    pixels = np.arange(made.shape[0] * made.shape[1])[:, None]
    read, written = (
        pixels * pixel_words(value) + (blocks if value.kind is Kind.BITS else channels) for value in (entering, made)
    )
    return max(0, int((written - read).max()))


def window_lead(window: ops.Window, entering: Value, made: Value) -> int:
    """What is written up to a pixel must lie before the first word that this pixel or a later one reads."""
    rows = np.maximum(np.arange(made.shape[0]) * window.stride[0] - window.pads[0], 0)
    columns = np.maximum(np.arange(made.shape[1]) * window.stride[1] - window.pads[1], 0)
    starts = (rows[:, None] * entering.shape[1] + columns).reshape(-1) * pixel_words(entering)
    needed = np.minimum.accumulate(starts[::-1])[::-1]
    written = np.arange(1, len(starts) + 1) * pixel_words(made)
    return max(0, int((written - needed).max()))
