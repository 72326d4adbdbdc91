"""Which function writes which operator in C."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bitedge.export.errors import ExportError
from bitedge.export.formats.c import convolutions, plain, text
from bitedge.export.formats.c.code import Code
from bitedge.export.ir import ops
from bitedge.export.ir.graph import Node

EMITTERS: Mapping[type[ops.Op], Callable[[Code, int, Node], None]] = {
    ops.BinaryConv2d: convolutions.binary_conv2d,
    ops.ImageConv2d: convolutions.image_conv2d,
    ops.Conv2d: convolutions.conv2d,
    ops.Elementwise: convolutions.elementwise,
    ops.MaxPool2d: plain.max_pool2d,
    ops.AvgPool2d: plain.avg_pool2d,
    ops.AdaptiveAvgPool2d: plain.adaptive_avg_pool2d,
    ops.Normalize: plain.normalize,
    ops.LayerNorm: plain.layer_norm,
    ops.GroupNorm: plain.group_norm,
    ops.Softmax: plain.softmax,
    ops.Concat: plain.concat,
    ops.GatherChannels: plain.gather_channels,
}


def emit(code: Code, index: int, node: Node) -> None:
    """Write one node, and a mark at every value that it makes."""
    write = EMITTERS.get(type(node.op))
    if write is None:
        raise ExportError(f"layer {node.layer!r}: the format 'c' has no operator {node.op.name}")
    code.flash.append(0)
    code.calls.append(f"  /* {text.comment(' + '.join((node.layer, *node.absorbed)))} */")
    write(code, index, node)
    positions = {name: position for position, name in enumerate(code.values)}
    for name in node.outputs:
        code.calls.append(f"  BITEDGE_TRACE({positions[name]}, {code.pointer(name)});")
