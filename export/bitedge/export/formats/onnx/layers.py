"""Layers that both ONNX files write alike, with stock operators: norms, averages, channels, functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitedge.export.formats.onnx.builder import Layout, OnnxBuilder
from bitedge.export.ir import ops
from bitedge.export.ir.graph import Node, Shape
from bitedge.export.ir.reference import adaptive_parts, divisors

Writer = Callable[[OnnxBuilder, Node, Any, Sequence[Shape]], None]


def per_channel(array: NDArray[Any], layout: Layout) -> NDArray[Any]:
    """Shape one number per channel (or one for all) so that it meets the channels."""
    return array if layout == "NHWC" else array.reshape(-1, 1, 1)


def window_attributes(window: ops.Window) -> dict[str, Any]:
    """Give a window as ONNX spells it."""
    return {
        "kernel_shape": list(window.kernel),
        "strides": list(window.stride),
        "pads": list(window.pads),
        "dilations": list(window.dilation),
    }


def layer_norm(to: OnnxBuilder, node: Node, op: ops.LayerNorm, _shapes: Sequence[Shape]) -> None:
    """Normalize over channels, which are last."""
    name = node.outputs[0]
    inputs = [
        to.get(node.inputs[0], "NHWC"),
        to.constant(op.weight, f"{name}/weight"),
        to.constant(op.bias, f"{name}/bias"),
    ]
    to.put(name, to.add("LayerNormalization", inputs, name, axis=-1, epsilon=op.eps), "NHWC")


def group_norm(to: OnnxBuilder, node: Node, op: ops.GroupNorm, shapes: Sequence[Shape]) -> None:
    """Normalize groups of channels over the whole map: each group is one channel of an instance normalization."""
    name, (height, width, channels) = node.outputs[0], shapes[0]
    grouped = to.reshape(to.get(node.inputs[0], "NCHW"), [0, op.groups, -1], f"{name}/grouped")
    ones = to.constant(np.ones(op.groups, np.float32), f"{name}/ones")
    zeros = to.constant(np.zeros(op.groups, np.float32), f"{name}/zeros")
    y = to.add("InstanceNormalization", [grouped, ones, zeros], f"{name}/normalized", epsilon=op.eps)
    y = to.reshape(y, [0, channels, height, width], f"{name}/map")
    y = to.add("Mul", [y, to.constant(per_channel(op.weight, "NCHW"), f"{name}/weight")], f"{name}/scaled")
    y = to.add("Add", [y, to.constant(per_channel(op.bias, "NCHW"), f"{name}/bias")], name)
    to.put(name, y, "NCHW")


def softmax(to: OnnxBuilder, node: Node, _op: ops.Softmax, _shapes: Sequence[Shape]) -> None:
    """Softmax over channels."""
    x = to.get(node.inputs[0], "NHWC")
    to.put(node.outputs[0], to.add("Softmax", [x], node.outputs[0], axis=-1), "NHWC")


def avg_pool2d(to: OnnxBuilder, node: Node, op: ops.AvgPool2d, shapes: Sequence[Shape]) -> None:
    """Average over a window; where the divisor differs from place to place, the mean of all taps is corrected."""
    x, name = to.get(node.inputs[0], "NCHW"), node.outputs[0]
    attributes = window_attributes(op.window)
    del attributes["dilations"]  # the graph has none here, and opset 17 knows none
    if op.window.kernel == shapes[0][:2] and not any(op.window.pads):
        out = to.add("GlobalAveragePool", [x], name)
    elif any(op.overhang):
        mean = to.add("AveragePool", [x], f"{name}/all", count_include_pad=1, **attributes)
        share = math.prod(op.window.kernel) / divisors(op, shapes[0][:2])
        factor = to.constant(share.reshape(share.shape[1:3]).astype(np.float32), f"{name}/share")
        out = to.add("Mul", [mean, factor], name)
    else:
        out = to.add("AveragePool", [x], name, count_include_pad=int(op.count_include_pad), **attributes)
    to.put(name, out, "NCHW")


def adaptive_avg_pool2d(to: OnnxBuilder, node: Node, op: ops.AdaptiveAvgPool2d, shapes: Sequence[Shape]) -> None:
    """Average over parts of the map: a matrix of shares on either side."""
    name, (height, width, _) = node.outputs[0], shapes[0]
    rows, columns = _shares(height, op.size[0]), _shares(width, op.size[1]).T
    y = to.add("MatMul", [to.constant(rows, f"{name}/rows"), to.get(node.inputs[0], "NCHW")], f"{name}/lines")
    to.put(name, to.add("MatMul", [y, to.constant(columns, f"{name}/columns")], name), "NCHW")


def _shares(length: int, size: int) -> NDArray[np.float32]:
    """Give the share of each row in each output, `[size, length]`."""
    shares = np.zeros((size, length), np.float32)
    for output, part in enumerate(adaptive_parts(length, size)):
        shares[output, list(part)] = 1 / len(part)
    return shares


def concat(to: OnnxBuilder, node: Node, _op: ops.Concat, _shapes: Sequence[Shape]) -> None:
    """Put the channels of all inputs side by side."""
    layouts = {to.layout(name) for name in node.inputs}
    layout: Layout = layouts.pop() if len(layouts) == 1 else "NCHW"
    parts = [to.get(name, layout) for name in node.inputs]
    out = to.add("Concat", parts, node.outputs[0], axis=1 if layout == "NCHW" else 3)
    to.put(node.outputs[0], out, layout)


def gather_channels(to: OnnxBuilder, node: Node, op: ops.GatherChannels, shapes: Sequence[Shape]) -> None:
    """Pick channels; the one after the last is 0."""
    name, layout = node.outputs[0], to.layout(node.inputs[0])
    axis, x = (1 if layout == "NCHW" else 3), to.get(node.inputs[0], layout)
    index = np.where(op.index < 0, shapes[0][2], op.index).astype(np.int32)
    if (op.index < 0).any():
        pads = np.zeros(8, np.int64)
        pads[4 + axis] = 1
        x = to.add("Pad", [x, to.constant(pads, f"{name}/pads")], f"{name}/padded")
    to.put(name, to.add("Gather", [x, to.constant(index, f"{name}/index")], name, axis=axis), layout)


LAYERS: Mapping[type[ops.Op], Writer] = {
    ops.LayerNorm: layer_norm,
    ops.GroupNorm: group_norm,
    ops.Softmax: softmax,
    ops.AvgPool2d: avg_pool2d,
    ops.AdaptiveAvgPool2d: adaptive_avg_pool2d,
    ops.Concat: concat,
    ops.GatherChannels: gather_channels,
}


def write_step(to: OnnxBuilder, step: ops.Step, y: str, layout: Layout, name: str) -> str:
    """Write a step of an epilogue that reads nothing but y."""
    if step.kind == "prelu":
        assert step.slope is not None
        return to.add("PRelu", [y, to.constant(per_channel(step.slope, layout), f"{name}/slope")], name)
    if step.kind == "clamp":
        return _clip(to, y, step.min, step.max, name)
    return _FUNCTIONS[step.kind](to, y, name)


def _clip(to: OnnxBuilder, y: str, low: float, high: float, name: str) -> str:
    limits = [to.constant(np.float32(limit), f"limit_{limit:g}") for limit in (low, high)]
    return to.add("Clip", [y, *limits], name)


def _times(to: OnnxBuilder, y: str, factor: float, name: str) -> str:
    return to.add("Mul", [y, to.constant(np.float32(factor), f"factor_{factor:g}")], name)


def _plus(to: OnnxBuilder, y: str, summand: float, name: str) -> str:
    return to.add("Add", [y, to.constant(np.float32(summand), f"summand_{summand:g}")], name)


def _hard(to: OnnxBuilder, y: str, name: str, *, times: bool) -> str:
    """clamp(y + 3, 0, 6) / 6, times y before the division: rounded as docs/format.md says."""
    limited = _clip(to, _plus(to, y, 3, f"{name}/shifted"), 0, 6, f"{name}/limited")
    if times:
        limited = to.add("Mul", [y, limited], f"{name}/product")
    return to.add("Div", [limited, to.constant(np.float32(6), "six")], name)


def _silu(to: OnnxBuilder, y: str, name: str) -> str:
    return to.add("Mul", [y, to.add("Sigmoid", [y], f"{name}/sigmoid")], name)


def _gelu(to: OnnxBuilder, y: str, name: str) -> str:
    error = to.add("Erf", [_times(to, y, math.sqrt(0.5), f"{name}/scaled")], f"{name}/erf")
    return _half_product(to, y, error, name)


def _gelu_tanh(to: OnnxBuilder, y: str, name: str) -> str:
    cube = to.add("Mul", [to.add("Mul", [y, y], f"{name}/square"), y], f"{name}/cube")
    inner = to.add("Add", [y, _times(to, cube, 0.044715, f"{name}/part")], f"{name}/sum")
    return _half_product(
        to, y, to.add("Tanh", [_times(to, inner, math.sqrt(2 / math.pi), f"{name}/arg")], f"{name}/tanh"), name
    )


def _half_product(to: OnnxBuilder, y: str, inner: str, name: str) -> str:
    """y / 2 · (1 + inner)."""
    return to.add("Mul", [_times(to, y, 0.5, f"{name}/half"), _plus(to, inner, 1, f"{name}/one_more")], name)


_FUNCTIONS: Mapping[str, Callable[[OnnxBuilder, str, str], str]] = {
    "relu": lambda to, y, name: to.add("Relu", [y], name),
    "sigmoid": lambda to, y, name: to.add("Sigmoid", [y], name),
    "tanh": lambda to, y, name: to.add("Tanh", [y], name),
    "hardsigmoid": lambda to, y, name: _hard(to, y, name, times=False),
    "hardswish": lambda to, y, name: _hard(to, y, name, times=True),
    "silu": _silu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
}
