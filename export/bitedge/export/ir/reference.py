"""The meaning of every operator, in numpy: what the core, and every other engine, is compared with.

Values are NHWC arrays: uint8 pixels, float32, int32 accumulators, bits as int8 ±1. Sums of products are taken in
float64 and rounded once (which is exact for integers), so a float answer is the best that float32 can hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from bitedge.export.ir import ops
from bitedge.export.ir.epilogue import steps_of
from bitedge.export.ir.graph import Graph, Node

Array = NDArray[Any]
FloatArray = NDArray[np.float32]


def run(graph: Graph, images: Array) -> FloatArray:
    """Give the answers to a batch of NHWC images, `[N, outputs]`."""
    answers: FloatArray = evaluate(graph, images)[graph.output]
    return np.asarray(answers, dtype=np.float32).reshape(len(images), -1)


def evaluate(graph: Graph, images: Array) -> dict[str, Array]:
    """Give every value of the graph by name."""
    values: dict[str, Array] = {graph.input.name: images}
    for node in graph.nodes:
        results = evaluate_node(node, [values[name] for name in node.inputs])
        values.update(zip(node.outputs, results, strict=True))
    return values


def evaluate_node(node: Node, inputs: Sequence[Array]) -> list[Array]:
    """Give the outputs of one node."""
    return MEANINGS[type(node.op)](node.op, *inputs)


def fma(x: Array, scale: FloatArray, bias: FloatArray) -> FloatArray:
    """x·scale + bias with one rounding: the product of two float32 is exact in float64."""
    return np.asarray(x.astype(np.float64) * scale.astype(np.float64) + bias.astype(np.float64), dtype=np.float32)


def sign(x: Array) -> NDArray[np.int8]:
    """+1 where x >= 0 (so for -0.0 too), else -1."""
    return np.where(x >= 0, np.int8(1), np.int8(-1))


def batch_norm(op: ops.BatchNorm, x: Array) -> FloatArray:
    """BatchNorm as torch evaluates it on a CPU: fma(x, alpha, beta), where beta is one fma as well."""
    alpha = (np.float32(1) / np.sqrt(op.variance + np.float32(op.eps))) * op.weight
    return fma(x.astype(np.float32), alpha, fma(-op.mean, alpha, op.bias))


def _pad(x: Array, pads: tuple[int, int, int, int], value: float) -> Array:
    top, left, bottom, right = pads
    return np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=value)


def _windows(x: Array, window: ops.Window, pad_value: float) -> Array:
    """All windows of x, `[N, OH, OW, C, KH, KW]`, without a copy of the elements."""
    padded = _pad(x, window.pads, pad_value)
    (kernel_h, kernel_w), (step_h, step_w) = window.kernel, window.dilation
    span = (step_h * (kernel_h - 1) + 1, step_w * (kernel_w - 1) + 1)
    views = sliding_window_view(padded, span, axis=(1, 2))  # type: ignore[call-overload]
    picked: Array = views[:, :: window.stride[0], :: window.stride[1], :, ::step_h, ::step_w]
    return picked


def _products(x: Array, weight: Array, window: ops.Window, pad_value: int) -> NDArray[np.float64]:
    """The sum over each window and group of weight times input, `[N, OH, OW, O]`."""
    windows = _windows(x, window, pad_value)
    depth, outputs = weight.shape[3], weight.shape[0] // window.groups
    sums = []
    for group in range(window.groups):
        taps = windows[:, :, :, group * depth : (group + 1) * depth].astype(np.float64)
        kernels = weight[group * outputs : (group + 1) * outputs].astype(np.float64)
        sums.append(np.tensordot(taps, kernels, axes=((4, 5, 3), (1, 2, 3))))
    return np.concatenate(sums, axis=-1)


def _finish(acc: Array, epilogue: ops.Epilogue | None, others: Sequence[Array]) -> list[Array]:
    """Apply an epilogue; `others` are the node's inputs after the first."""
    if epilogue is None:
        return [acc]
    if isinstance(epilogue, ops.Threshold):
        return [np.where(acc >= epilogue.threshold, np.int8(1), np.int8(-1))]
    y: FloatArray = acc.astype(np.float32)
    entering = iter(others)
    for step in steps_of(epilogue, 1 + len(others)):
        y = apply_step(step, y, next(entering).astype(np.float32) if step.reads else None)
    return [*([y] if epilogue.emit != "bits" else []), *([sign(y)] if epilogue.emit != "float" else [])]


def apply_step(step: ops.Step, y: FloatArray, other: FloatArray | None = None) -> FloatArray:
    """One step of an epilogue, in float32."""
    if step.kind == "fma":
        assert step.scale is not None
        assert step.bias is not None
        return fma(y, step.scale, step.bias)
    if step.kind == "prelu":
        return np.where(y >= 0, y, y if step.slope is None else step.slope * y)
    if step.kind == "clamp":
        return clamp(y, step.min, step.max)
    if other is not None:
        return y + other if step.kind == "add" else y * other
    return FUNCTIONS[step.kind](y)


def clamp(x: FloatArray, low: float, high: float) -> FloatArray:
    """x, but not below `low` and not above `high`."""
    limited: FloatArray = np.minimum(np.maximum(x, np.float32(low)), np.float32(high))
    return limited


def _wide(function: Callable[[Array], Array]) -> Callable[[FloatArray], FloatArray]:
    """Compute in float64 and round once: exponentials may overflow there, to the right limit."""

    def rounded(y: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            return np.asarray(function(y.astype(np.float64)), dtype=np.float32)

    return rounded


_erf = np.vectorize(math.erf, otypes=[np.float64])
_TANH_SCALE, _TANH_CUBE = math.sqrt(2 / math.pi), 0.044715
FUNCTIONS: Mapping[str, Callable[[FloatArray], FloatArray]] = {
    "relu": lambda y: np.maximum(y, np.float32(0)),
    "hardsigmoid": lambda y: clamp(y + np.float32(3), 0, 6) / np.float32(6),
    "hardswish": lambda y: (y * clamp(y + np.float32(3), 0, 6)) / np.float32(6),
    "sigmoid": _wide(lambda y: 1 / (1 + np.exp(-y))),
    "tanh": _wide(np.tanh),
    "silu": _wide(lambda y: y / (1 + np.exp(-y))),
    "gelu": _wide(lambda y: y / 2 * (1 + _erf(y / math.sqrt(2)))),
    "gelu_tanh": _wide(lambda y: y / 2 * (1 + np.tanh(_TANH_SCALE * (y + _TANH_CUBE * y**3)))),
}


def _conv2d(op: ops.Conv2d, x: Array, *others: Array) -> list[Array]:
    sums = _products(x, op.weight, op.window, 0).astype(np.float32)
    return _finish(sums, op.epilogue, others)


def _binary_conv2d(op: ops.BinaryConv2d, x: Array, *others: Array) -> list[Array]:
    acc = _products(x, op.weight, op.window, op.pad_value).astype(np.int32)
    return _finish(acc, op.epilogue, others)


def _image_conv2d(op: ops.ImageConv2d, x: Array, *others: Array) -> list[Array]:
    centred = 2 * x.astype(np.int32) - 255
    return _finish(_products(centred, op.weight, op.window, 0).astype(np.int32), op.epilogue, others)


def _elementwise(op: ops.Elementwise, x: Array, *others: Array) -> list[Array]:
    return _finish(x, op.epilogue, others)


def _max_pool2d(op: ops.MaxPool2d, x: Array) -> list[Array]:
    lowest = -np.inf if x.dtype == np.float32 else np.iinfo(x.dtype).min + 1
    largest: Array = _windows(x, op.window, lowest).max(axis=(4, 5))
    if op.min_channels is None:
        return [largest]
    smallest = -_windows(-x, op.window, lowest).max(axis=(4, 5))
    return [np.where(op.min_channels, smallest, largest)]


def _avg_pool2d(op: ops.AvgPool2d, x: Array) -> list[Array]:
    total = _windows(x.astype(np.float64), op.window, 0).sum(axis=(4, 5))
    return [(total / divisors(op, x.shape[1:3])).astype(np.float32)]


def divisors(op: ops.AvgPool2d, size: tuple[int, ...]) -> NDArray[np.float64]:
    """What an average pooling divides by at each output of a map of this height and width, `[1, OH, OW, 1]`."""
    (top, left, bottom, right), (below, beside) = op.window.pads, op.overhang
    counted = _pad(np.ones((1, *size, 1)), (top, left, bottom - below, right - beside), op.count_include_pad)
    counted = _pad(counted, (0, 0, below, beside), 0)
    count: NDArray[np.float64] = _windows(counted, replace(op.window, pads=(0, 0, 0, 0)), 0).sum(axis=(4, 5))
    return count


def adaptive_parts(length: int, size: int) -> list[range]:
    """The rows (or columns) that each output of an adaptive pooling averages."""
    return [range(i * length // size, -(-(i + 1) * length // size)) for i in range(size)]


def _adaptive_avg_pool2d(op: ops.AdaptiveAvgPool2d, x: Array) -> list[Array]:
    wide = x.astype(np.float64)
    for axis, size in ((1, op.size[0]), (2, op.size[1])):
        parts = adaptive_parts(x.shape[axis], size)
        wide = np.concatenate([wide.take(part, axis).mean(axis=axis, keepdims=True) for part in parts], axis=axis)
    return [wide.astype(np.float32)]


def _group_norm(op: ops.GroupNorm, x: Array) -> list[Array]:
    grouped = x.astype(np.float64).reshape(*x.shape[:3], op.groups, -1)
    centred = grouped - grouped.mean(axis=(1, 2, 4), keepdims=True)
    spread = np.sqrt((centred**2).mean(axis=(1, 2, 4), keepdims=True) + op.eps)
    return [((centred / spread).reshape(x.shape) * op.weight + op.bias).astype(np.float32)]


def _gather_channels(op: ops.GatherChannels, x: Array) -> list[Array]:
    if not (op.index < 0).any():
        return [x[..., op.index]]
    with_zero = np.concatenate([x.astype(np.float32), np.zeros((*x.shape[:3], 1), np.float32)], axis=-1)
    return [with_zero[..., op.index]]


def _concat(_op: ops.Concat, *inputs: Array) -> list[Array]:
    same = len({x.dtype for x in inputs}) == 1
    return [np.concatenate([x if same else x.astype(np.float32) for x in inputs], axis=-1)]


def _layer_norm(op: ops.LayerNorm, x: Array) -> list[Array]:
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=-1, keepdims=True)
    spread = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + op.eps)
    return [(centred / spread * op.weight + op.bias).astype(np.float32)]


def _softmax(_op: ops.Softmax, x: Array) -> list[Array]:
    powers = np.exp(x.astype(np.float64) - x.max(axis=-1, keepdims=True))
    return [(powers / powers.sum(axis=-1, keepdims=True)).astype(np.float32)]


MEANINGS: Mapping[type[ops.Op], Callable[..., list[Array]]] = {
    ops.Normalize: lambda op, u: [fma(u, op.scale, op.offset)],
    ops.Pad: lambda op, x: [_pad(x if op.keeps_bits else x.astype(np.float32), op.pads, op.value)],
    ops.Sign: lambda _, x: [sign(x)],
    ops.Conv2d: _conv2d,
    ops.BinaryConv2d: _binary_conv2d,
    ops.ImageConv2d: _image_conv2d,
    ops.BatchNorm: lambda op, x: [batch_norm(op, x)],
    ops.LayerNorm: _layer_norm,
    ops.GroupNorm: _group_norm,
    ops.Relu: lambda _, x: [np.maximum(x.astype(np.float32), np.float32(0))],
    ops.Scale: lambda op, x: [x.astype(np.float32) * op.scale],
    ops.Shift: lambda op, x: [x.astype(np.float32) + op.bias],
    ops.Clamp: lambda op, x: [clamp(x.astype(np.float32), op.min, op.max)],
    ops.Function: lambda op, x: [FUNCTIONS[op.kind](x.astype(np.float32))],
    ops.Prelu: lambda op, x: [np.where(x >= 0, x, op.slope * x).astype(np.float32)],
    ops.Add: lambda _, x, y: [x.astype(np.float32) + y.astype(np.float32)],
    ops.Multiply: lambda _, x, y: [x.astype(np.float32) * y.astype(np.float32)],
    ops.Concat: _concat,
    ops.GatherChannels: _gather_channels,
    ops.Flatten: lambda _, x: [x.reshape(len(x), 1, 1, -1)],
    ops.MaxPool2d: _max_pool2d,
    ops.AvgPool2d: _avg_pool2d,
    ops.AdaptiveAvgPool2d: _adaptive_avg_pool2d,
    ops.Softmax: _softmax,
    ops.Elementwise: _elementwise,
}
