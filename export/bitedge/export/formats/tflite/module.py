"""A lowered graph as a plain `tf.Module`, in the patterns that Larq Compute Engine's converter turns into bits.

Only a child process imports this module. A value of bits is kept as the number whose sign it is (`Bits.pre`), because
the converter moves the sign through a max-pool, and because padding a number before its sign is how +1 and -1 are
padded where the converter has no form of its own.

Exactness: a threshold t becomes `acc + (0.5 - t)`, a half-integer that is never 0, so that no rounding of the
converter's own thresholds can move it. Scale and bias stand as a 1x1 depthwise convolution: as a product the converter
would fold them into the binary convolution, whose sums would then no longer be exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from bitedge.export.formats.tflite.layers import adaptive_avg_pool2d, apply_step, gather_channels, group_norm
from bitedge.export.formats.tflite.padding import extensions, keras_padding, touched
from bitedge.export.ir import ops, reference
from bitedge.export.ir.epilogue import steps_of
from bitedge.export.ir.graph import Graph, Kind, Node, Shape, Value
from bitedge.export.ir.shapes import infer

Tensor = Any
LOWEST = float(np.finfo(np.float32).min)


@dataclass(frozen=True, eq=False)
class Bits:
    """A value of bits: +1 where `pre` >= 0, else -1."""

    pre: Tensor

    def signs(self) -> Tensor:
        """Give ±1.0, in the form that the converter recognises."""
        return tf.where(self.pre >= 0, 1.0, -1.0)


def build(graph: Graph) -> tf.Module:
    """Give a module whose `answer` takes one image `[1, H, W, C]` and gives `[1, outputs]`."""
    kind = tf.uint8 if graph.input.kind is Kind.UINT8 else tf.float32
    signature = tf.TensorSpec((1, *graph.input.shape), kind, name=graph.input.name)

    def answer(image: Tensor) -> Tensor:
        return Emitter(graph).run(image)

    module = tf.Module()
    module.answer = tf.function(answer, input_signature=[signature])
    return module


class Emitter:
    """Writes the nodes of a lowered graph, one by one, as TensorFlow operations."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.values: Mapping[str, Value] = infer(graph)
        self.made: dict[str, Any] = {}

    def run(self, image: Tensor) -> Tensor:
        """Give the answer to one image."""
        self.made[self.graph.input.name] = image
        for node in self.graph.nodes:
            entering = self.made[node.inputs[0]]
            RULES[type(node.op)](self, node, node.op, entering)
        return tf.reshape(self.made[self.graph.output], [1, -1])

    def shape(self, name: str) -> Shape:
        """Give the shape of a value."""
        return self.values[name].shape

    def normalize(self, node: Node, op: ops.Normalize, pixels: Tensor) -> None:
        """Turn pixels into floats."""
        self.made[node.outputs[0]] = tf.cast(pixels, tf.float32) * op.scale + op.offset

    def image_conv2d(self, node: Node, op: ops.ImageConv2d, pixels: Tensor) -> None:
        """Convolve pixels with ±1 weights, in floats: exact, because every partial sum is an integer below 2**24."""
        centred = tf.cast(pixels, tf.float32) * 2.0 - 255.0
        self.epilogue(node, self.float_conv(node, op, centred), exact=True)

    def conv2d(self, node: Node, op: ops.Conv2d, x: Tensor) -> None:
        """Convolve floats."""
        self.epilogue(node, self.float_conv(node, op, x), exact=False)

    def float_conv(self, node: Node, op: ops.Convolution, x: Tensor) -> Tensor:
        """Convolve floats, padded with 0."""
        shape = self.shape(node.inputs[0])
        padding = keras_padding(shape, op.window)
        if padding is None:
            x = _pad(x, touched(shape, op.window), 0.0)
        weight = op.weight.astype(np.float32)
        square, plain = len(set(op.window.stride)) == 1, 1 in (max(op.window.stride), max(op.window.dilation))
        if weight.shape[3] == 1 and op.window.groups > 1 and square and plain:
            return _depthwise(x, weight, op.window, padding or "VALID")
        return _grouped(x, weight, op.window, lambda part, kernel: _conv(part, kernel, op.window, padding or "VALID"))

    def binary_conv2d(self, node: Node, op: ops.BinaryConv2d, bits: Bits) -> None:
        """Convolve bits with ±1 weights."""
        shape = self.shape(node.inputs[0])
        window = touched(shape, op.window)

        def part(pre: Tensor, kernel: NDArray[np.float32]) -> Tensor:
            return _binary_conv(Bits(pre), kernel, window, op.pad_value, shape)

        self.epilogue(node, _grouped(bits.pre, op.weight.astype(np.float32), window, part), exact=True)

    def elementwise(self, node: Node, _op: ops.Elementwise, x: Tensor | Bits) -> None:
        """Nothing but an epilogue."""
        self.epilogue(node, _number(x), exact=False)

    def max_pool2d(self, node: Node, op: ops.MaxPool2d, x: Tensor | Bits) -> None:
        """Take the maximum; a channel of bits that wants the minimum is negated before and after."""
        shape = self.shape(node.inputs[0])
        if not isinstance(x, Bits):
            self.made[node.outputs[0]] = _max_pool(x, shape, op.window)
        elif op.min_channels is None:
            self.made[node.outputs[0]] = Bits(_max_pool(x.pre, shape, op.window))
        else:
            turn = np.where(op.min_channels, np.float32(-1), np.float32(1))
            self.made[node.outputs[0]] = Bits(_max_pool(x.signs() * turn, shape, op.window) * turn)

    def avg_pool2d(self, node: Node, op: ops.AvgPool2d, x: Tensor) -> None:
        """Average over a window; SAME counts real pixels only, VALID has no others."""
        shape, window = self.shape(node.inputs[0]), op.window
        padding = keras_padding(shape, window)
        if padding == "VALID" or (padding == "SAME" and not op.count_include_pad):
            self.made[node.outputs[0]] = tf.nn.avg_pool2d(x, window.kernel, window.stride, padding)
            return
        mean = tf.nn.avg_pool2d(_pad(x, touched(shape, window), 0.0), window.kernel, window.stride, "VALID")
        share = (np.prod(window.kernel) / reference.divisors(op, shape[:2])).astype(np.float32)
        self.made[node.outputs[0]] = mean if bool((share == 1).all()) else mean * share

    def adaptive_avg_pool2d(self, node: Node, op: ops.AdaptiveAvgPool2d, x: Tensor) -> None:
        """Average over parts of the map."""
        self.made[node.outputs[0]] = adaptive_avg_pool2d(op, x, self.shape(node.inputs[0]))

    def group_norm(self, node: Node, op: ops.GroupNorm, x: Tensor) -> None:
        """Normalize groups of channels."""
        self.made[node.outputs[0]] = group_norm(op, x, self.shape(node.inputs[0]))

    def concat(self, node: Node, _op: ops.Concat, _x: Tensor | Bits) -> None:
        """Put the channels of all inputs side by side."""
        parts = [self.made[name] for name in node.inputs]
        if all(isinstance(part, Bits) for part in parts):
            self.made[node.outputs[0]] = Bits(tf.concat([part.pre for part in parts], axis=3))
        else:
            self.made[node.outputs[0]] = tf.concat([_number(part) for part in parts], axis=3)

    def gather_channels(self, node: Node, op: ops.GatherChannels, x: Tensor | Bits) -> None:
        """Pick channels."""
        shape = self.shape(node.inputs[0])
        bits = isinstance(x, Bits) and self.values[node.outputs[0]].kind is Kind.BITS
        self.made[node.outputs[0]] = (
            Bits(gather_channels(op, x.pre, shape)) if bits else gather_channels(op, _number(x), shape)
        )

    def layer_norm(self, node: Node, op: ops.LayerNorm, x: Tensor) -> None:
        """Normalize over channels."""
        centred = x - tf.reduce_mean(x, axis=-1, keepdims=True)
        spread = tf.math.rsqrt(tf.reduce_mean(centred * centred, axis=-1, keepdims=True) + np.float32(op.eps))
        self.made[node.outputs[0]] = centred * spread * op.weight + op.bias

    def softmax(self, node: Node, _op: ops.Softmax, x: Tensor) -> None:
        """Softmax over channels."""
        self.made[node.outputs[0]] = tf.nn.softmax(x)

    def epilogue(self, node: Node, acc: Tensor, *, exact: bool) -> None:
        """Write what follows a product; `exact` keeps scale and bias out of the product's weights."""
        epilogue = ops.epilogue_of(node.op)
        assert epilogue is not None
        if isinstance(epilogue, ops.Threshold):
            self.made[node.outputs[0]] = Bits(acc + (np.float32(0.5) - epilogue.threshold.astype(np.float32)))
            return
        y, entering = acc, iter(node.inputs[1:])
        for number, step in enumerate(steps_of(epilogue, len(node.inputs))):
            if step.kind == "fma":
                assert step.scale is not None
                y = (_scale(y, step.scale) if exact and number == 0 else y * step.scale) + step.bias
            elif step.kind == "add":
                y = y + _number(self.made[next(entering)])
            elif step.kind == "multiply":
                y = y * _number(self.made[next(entering)])
            else:
                y = apply_step(step, y)
        if epilogue.emit != "bits":
            self.made[node.outputs[0]] = y
        if epilogue.emit != "float":
            self.made[node.outputs[-1]] = Bits(y)


RULES: Mapping[type[ops.Op], Callable[..., None]] = {
    ops.Normalize: Emitter.normalize,
    ops.ImageConv2d: Emitter.image_conv2d,
    ops.BinaryConv2d: Emitter.binary_conv2d,
    ops.Conv2d: Emitter.conv2d,
    ops.Elementwise: Emitter.elementwise,
    ops.MaxPool2d: Emitter.max_pool2d,
    ops.AvgPool2d: Emitter.avg_pool2d,
    ops.AdaptiveAvgPool2d: Emitter.adaptive_avg_pool2d,
    ops.GroupNorm: Emitter.group_norm,
    ops.Concat: Emitter.concat,
    ops.GatherChannels: Emitter.gather_channels,
    ops.LayerNorm: Emitter.layer_norm,
    ops.Softmax: Emitter.softmax,
}


def _number(value: Tensor | Bits) -> Tensor:
    return value.signs() if isinstance(value, Bits) else value


def _scale(x: Tensor, scale: NDArray[np.float32]) -> Tensor:
    """x·scale as an operator that the converter leaves alone."""
    return tf.nn.depthwise_conv2d(x, scale.reshape(1, 1, -1, 1), [1, 1, 1, 1], "VALID")


def _pad(x: Tensor, window: ops.Window, value: float) -> Tensor:
    top, left, bottom, right = window.pads
    return tf.pad(x, [[0, 0], [top, bottom], [left, right], [0, 0]], constant_values=value)


def _conv(x: Tensor, weight: NDArray[np.float32], window: ops.Window, padding: str) -> Tensor:
    """Convolve; `weight` is `[O, KH, KW, I]`, TensorFlow's is `[KH, KW, I, O]`."""
    return tf.nn.conv2d(x, weight.transpose(1, 2, 3, 0), window.stride, padding, dilations=window.dilation)


def _grouped(
    x: Tensor,
    weight: NDArray[np.float32],
    window: ops.Window,
    conv: Callable[[Tensor, NDArray[np.float32]], Tensor],
) -> Tensor:
    """Convolve group by group: Larq Compute Engine's own kernel takes no groups."""
    if window.groups == 1:
        return conv(x, weight)
    depth, outputs = weight.shape[3], len(weight) // window.groups
    parts = [
        conv(x[..., g * depth : (g + 1) * depth], weight[g * outputs : (g + 1) * outputs]) for g in range(window.groups)
    ]
    return tf.concat(parts, axis=-1)


def _depthwise(x: Tensor, weight: NDArray[np.float32], window: ops.Window, padding: str) -> Tensor:
    """Convolve every channel by itself."""
    multiplier = len(weight) // window.groups
    kernel = weight[..., 0].transpose(1, 2, 0).reshape(*window.kernel, window.groups, multiplier)
    strides = [1, *window.stride, 1]
    return tf.nn.depthwise_conv2d(x, kernel, strides, padding, dilations=window.dilation)


def _binary_conv(bits: Bits, weight: NDArray[np.float32], window: ops.Window, pad_value: int, shape: Shape) -> Tensor:
    """Convolve ±1 with ±1 so that the converter makes a binary convolution of it."""
    padding = keras_padding(shape, window)
    if padding == "VALID":
        return _conv(bits.signs(), weight, window, "VALID")
    if pad_value == 1 and padding == "SAME":
        return _conv(_pad(bits.signs(), window, 1.0), weight, window, "VALID")  # becomes SAME with pad_values=1
    if pad_value != 0:
        return _conv(Bits(_pad(bits.pre, window, float(pad_value))).signs(), weight, window, "VALID")
    extra = extensions(shape, window)
    if extra == (0, 0):
        return _conv(bits.signs(), weight, window, "SAME")
    if extra is not None:
        rows, columns = window.output_size(shape[0], shape[1])
        longer = Bits(_pad(bits.pre, replace(window, pads=(0, 0, *extra)), 0.0))
        return _conv(longer.signs(), weight, window, "SAME")[:, :rows, :columns]
    # Pad with +1 and take off what that added: the sum of the weights that look at the padding. The product with 1 is
    # there because the converter would fold the difference into the binary convolution's bias, though it is a map.
    padded = _conv(Bits(_pad(bits.pre, window, 1.0)).signs(), weight, window, "VALID")
    return _scale(padded, np.ones(len(weight), np.float32)) - _padding_sums(weight, window, shape)


def _padding_sums(weight: NDArray[np.float32], window: ops.Window, shape: Shape) -> NDArray[np.float32]:
    """The sum of the weights that look at the padding, for each output, `[1, OH, OW, O]`."""
    top, left, bottom, right = window.pads
    outside = np.ones((1, shape[0] + top + bottom, shape[1] + left + right, 1), np.float32)
    outside[:, top : top + shape[0], left : left + shape[1]] = 0
    op = ops.Conv2d(weight.sum(axis=3, keepdims=True), replace(window, pads=(0, 0, 0, 0), groups=1))
    sums: NDArray[np.float32] = reference.evaluate_node(Node(op, (), ()), [outside])[0]
    return sums


def _max_pool(x: Tensor, shape: Shape, window: ops.Window) -> Tensor:
    padding = keras_padding(shape, window)
    if padding is None:
        x = _pad(x, touched(shape, window), LOWEST)
    if window.dilation == (1, 1):
        return tf.nn.max_pool2d(x, window.kernel, window.stride, padding or "VALID")
    return tf.nn.pool(x, window.kernel, "MAX", window.stride, padding or "VALID", dilations=window.dilation)
