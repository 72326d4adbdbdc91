"""From the lowered graph to ONNX: what the float file and the int8 file have in common.

Float layers, pooling, normalization and every epilogue are written here; a subclass says what a bit is
(`PLUS`, `MINUS`) and how the layers with ±1 weights compute.

One bit that flips between two engines changes thousands of sums behind it, so what leads to a sign is rounded as torch
rounds it: integer sums are exact, and BatchNorm, which in torch is one fused multiply-add, is computed in double and
rounded once (`_fma`), where `rounds_once` says so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from bitedge.export.errors import ExportError
from bitedge.export.formats.bundle import Bundle
from bitedge.export.formats.onnx.builder import Layout, OnnxBuilder
from bitedge.export.formats.onnx.layers import LAYERS, per_channel, window_attributes, write_step
from bitedge.export.ir import limits, ops, reference
from bitedge.export.ir.epilogue import from_steps, steps_of
from bitedge.export.ir.graph import Graph, Kind, Node, Value
from bitedge.export.ir.shapes import infer


class OnnxEmitter(ABC):
    """Writes the nodes of a lowered graph, one by one, into a builder."""

    PLUS: ClassVar[Any]  # numpy scalars of the type that bits have
    MINUS: ClassVar[Any]

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.values: Mapping[str, Value] = infer(graph)
        self.to = OnnxBuilder()
        self.to.put(graph.input.name, self.to.name(graph.input.name), "NHWC")

    def emit(self, bundle: Bundle) -> Any:
        """Give the finished model."""
        rules: Mapping[type[ops.Op], Callable[[Node, Any], None]] = {
            ops.Normalize: self.normalize,
            ops.ImageConv2d: self.image_conv2d,
            ops.BinaryConv2d: self.binary_conv2d,
            ops.Conv2d: self.conv2d,
            ops.Elementwise: self.elementwise,
            ops.MaxPool2d: self.max_pool2d,
        }
        for node in self.graph.nodes:
            if type(node.op) in LAYERS:
                LAYERS[type(node.op)](self.to, node, node.op, [self.values[name].shape for name in node.inputs])
            else:
                rules[type(node.op)](node, node.op)
        outputs = int(np.prod(self.values[self.graph.output].shape))
        # The answer counts pixels before channels, as the core does.
        answer = self.to.reshape(self.to.get(self.graph.output, "NHWC"), [0, outputs], "answer")
        values = {name: (*place, self.values[name].kind) for name, place in self.to.places().items()}
        return self.to.model(bundle, answer, outputs, {"answer": self.graph.output, "values": values})

    # Layers with ±1 weights: the subclass's business.

    def image_conv2d(self, node: Node, op: ops.ImageConv2d) -> None:
        """Convolve pixels with ±1 weights, in floats: exact, because every partial sum is an integer below 2**24."""
        if int(np.prod(op.weight.shape[1:])) > limits.IMAGE_TAPS:
            raise ExportError(
                f"layer {node.layer!r}: more than {limits.IMAGE_TAPS} taps on pixels are not exact in float32; "
                "export this network as gguf only"
            )
        pixels = self.to.add("Cast", [self.to.get(node.inputs[0], "NCHW")], "pixels", to=TensorProto.FLOAT)
        pixels = self.to.add("Mul", [pixels, self.to.constant(np.float32(2), "two")], "pixels/twice")
        pixels = self.to.add("Sub", [pixels, self.to.constant(np.float32(255), "white")], "pixels/centred")
        self.epilogue(node, self.float_signs_conv(node, op, pixels), "NCHW")

    @abstractmethod
    def binary_conv2d(self, node: Node, op: ops.BinaryConv2d) -> None:
        """Convolve bits with ±1 weights."""

    def float_signs_conv(self, node: Node, op: ops.Convolution, x: str, *, pad: bool = True) -> str:
        """Convolve floats with ±1 weights that are stored as bits."""
        table = np.array([1, -1], np.float32)
        return self._float_conv(node, op, x, lambda w, shape, name: self.to.signs(w, shape, table, name), pad=pad)

    # Float layers.

    def conv2d(self, node: Node, op: ops.Conv2d) -> None:
        """Convolve floats with float weights, or with ±1 weights on a float input."""
        pointwise = op.window == ops.Window()  # 1x1 at stride 1: a matrix product, where channels are last anyway
        if pointwise and not op.binary and self.to.layout(node.inputs[-1]) == "NHWC":
            folded = _fold_scale(op, len(node.inputs))
            matrix = folded.weight.reshape(len(op.weight), -1).T
            stored = self._float_weight(matrix, list(matrix.shape), f"{node.outputs[0]}/weight")
            acc = self.to.add("MatMul", [self.to.get(node.inputs[0], "NHWC"), stored], f"{node.outputs[0]}/acc")
            self.epilogue(replace(node, op=folded), acc, "NHWC")
            return
        x = self.to.get(node.inputs[0], "NCHW")
        acc = self.float_signs_conv(node, op, x) if op.binary else self._float_conv(node, op, x, self._float_weight)
        self.epilogue(node, acc, "NCHW")

    def _float_weight(self, weight: NDArray[Any], shape: list[int], name: str) -> str:
        stored = self.to.constant(weight.reshape(shape), name)
        if weight.dtype == np.float16:
            return self.to.add("Cast", [stored], f"{name}/wide", to=TensorProto.FLOAT)
        return stored

    def _float_conv(
        self,
        node: Node,
        op: ops.Convolution,
        x: str,
        store: Callable[[NDArray[Any], list[int], str], str],
        *,
        pad: bool = True,
    ) -> str:
        name, weight = node.outputs[0], op.weight.transpose(0, 3, 1, 2)  # [O, I, KH, KW]
        if self.is_dense(node, op):
            flat = self.to.add("Flatten", [x], f"{name}/flat", axis=1)
            matrix = weight.reshape(len(weight), -1).T
            acc = self.to.add("MatMul", [flat, store(matrix, list(matrix.shape), f"{name}/weight")], f"{name}/acc")
            return self.to.reshape(acc, [0, len(weight), 1, 1], f"{name}/map")
        stored = store(weight, list(weight.shape), f"{name}/weight")
        window = window_attributes(op.window) | {"group": op.window.groups}
        return self.to.add("Conv", [x, stored], f"{name}/acc", **window | ({} if pad else {"pads": [0] * 4}))

    def is_dense(self, node: Node, op: ops.Convolution) -> bool:
        """Tell whether the kernel is the whole map, so that the layer is a matrix product."""
        return (
            op.window.kernel == self.values[node.inputs[0]].shape[:2]
            and not any(op.window.pads)
            and op.window.groups == 1
        )

    def normalize(self, node: Node, op: ops.Normalize) -> None:
        """Turn pixels into floats."""
        name = node.outputs[0]
        x = self.to.add("Cast", [self.to.get(node.inputs[0], "NCHW")], f"{name}/pixels", to=TensorProto.FLOAT)
        self.to.put(name, self.fma(node, x, op.scale, op.offset, "NCHW", name), "NCHW")

    def max_pool2d(self, node: Node, op: ops.MaxPool2d) -> None:
        """Take the maximum; a channel of bits that wants the minimum is negated before and after."""
        name = node.outputs[0]
        x = self.to.get(node.inputs[0], "NCHW")
        if op.min_channels is None:
            out = self.to.add("MaxPool", [x], name, **window_attributes(op.window))
        else:
            x = self._negate(x, op.min_channels, f"{name}/turned")
            x = self.to.add("MaxPool", [x], f"{name}/largest", **window_attributes(op.window))
            out = self._negate(x, op.min_channels, name)
        self.to.put(name, out, "NCHW")

    def _negate(self, bits: str, channels: NDArray[np.bool_], name: str) -> str:
        """Negate some channels of bits: PLUS + MINUS - x swaps the two."""
        both = self.to.constant(self.PLUS + self.MINUS, "both_signs")
        swapped = self.to.add("Sub", [both, bits], f"{name}/swapped")
        mask = self.to.constant(channels.reshape(1, -1, 1, 1), f"{name}/channels")
        return self.to.add("Where", [mask, swapped, bits], name)

    # Epilogues.

    def elementwise(self, node: Node, _op: ops.Elementwise) -> None:
        """Nothing but an epilogue."""
        layout = self.elementwise_layout(node)
        x = self.as_float(node.inputs[0], layout)
        self.epilogue(node, x, layout)

    def elementwise_layout(self, node: Node) -> Layout:
        """Give the layout to compute in."""
        return self.to.layout(node.inputs[0])

    def rounds_once(self, node: Node) -> bool:
        """Tell whether scale and bias are worth one rounding.

        Behind a float convolution they are not: its sum has been rounded many times already, and a runtime folds plain
        scale and bias into its weights. Nor are they on pixels if two roundings give the same 256 numbers.
        """
        if isinstance(node.op, ops.Normalize):
            levels, (scale, offset) = np.arange(256, dtype=np.float32)[:, None], (node.op.scale, node.op.offset)
            return bool((levels * scale + offset != reference.fma(levels, scale, offset)).any())
        return not isinstance(node.op, ops.Conv2d)

    def epilogue(self, node: Node, acc: str, layout: Layout) -> None:
        """Write what follows a product: threshold or affine, residual, activation, sign."""
        epilogue = ops.epilogue_of(node.op)
        if isinstance(epilogue, ops.Threshold):
            self._threshold(node, acc, epilogue, layout)
            return
        assert epilogue is not None
        steps = steps_of(epilogue, len(node.inputs))
        entering = iter(node.inputs[1:])
        y, last = acc, node.outputs[0] if epilogue.emit != "bits" else f"{node.outputs[0]}/float"
        for number, step in enumerate(steps, start=1):
            name = last if number == len(steps) else f"{last}/step{number}"
            if step.kind == "fma":
                assert step.scale is not None
                assert step.bias is not None
                y = self.fma(node, y, step.scale, step.bias, layout, name)
            elif step.reads:
                other = self.as_float(next(entering), layout)
                y = self.to.add("Add" if step.kind == "add" else "Mul", [y, other], name)
            else:
                y = write_step(self.to, step, y, layout, name)
        if epilogue.emit != "bits":
            self.to.put(node.outputs[0], y, layout)
        if epilogue.emit != "float":
            zero = self.to.constant(np.float32(0), "zero")
            self.to.put(node.outputs[-1], self.at_least(y, zero, node.outputs[-1]), layout)

    def _threshold(self, node: Node, acc: str, epilogue: ops.Threshold, layout: Layout) -> None:
        name = node.outputs[0]
        limit = self.to.constant(per_channel(epilogue.threshold.astype(np.float32), layout), f"{name}/threshold")
        self.to.put(name, self.at_least(acc, limit, name), layout)

    def at_least(self, x: str, limit: str, name: str) -> str:
        """Bits: +1 where x >= limit. (ONNX's own Sign gives 0 for 0.)"""
        condition = self.to.add("GreaterOrEqual", [x, limit], f"{name}/positive")
        signs = [self.to.constant(self.PLUS, "plus"), self.to.constant(self.MINUS, "minus")]
        return self.to.add("Where", [condition, *signs], name)

    def fma(self, node: Node, x: str, scale: ops.FloatArray, bias: ops.FloatArray, layout: Layout, name: str) -> str:
        """x·scale + bias; in double the product of two float32 is exact, so that only the result is rounded."""
        once = self.rounds_once(node)
        wide = np.float64 if once else np.float32
        if once:
            x = self.to.add("Cast", [x], f"{name}/double", to=TensorProto.DOUBLE)
        if not bool((scale == 1).all()):
            factor = self.factor(node, per_channel(scale, layout).astype(wide), name)
            x = self.to.add("Mul", [x, factor], f"{name}/scaled")
        offset = self.to.constant(per_channel(bias, layout).astype(wide), f"{name}/bias")
        x = self.to.add("Add", [x, offset], f"{name}/shifted" if once else name)
        return self.to.add("Cast", [x], name, to=TensorProto.FLOAT) if once else x

    def factor(self, _node: Node, scale: NDArray[Any], name: str) -> str:
        """Give the tensor to scale with."""
        return self.to.constant(scale, f"{name}/scale")

    def as_float(self, value: str, layout: Layout) -> str:
        """Give a value as floats: bits as ±1."""
        return self.to.get(value, layout)

    def is_bits(self, value: str) -> bool:
        """Tell whether a value of the graph is bits."""
        return self.values[value].kind is Kind.BITS


def _fold_scale(op: ops.Conv2d, inputs: int) -> ops.Conv2d:
    """Give the same layer with its first scale in its weights, as runtimes do with Conv but not with MatMul."""
    if op.epilogue is None or op.weight.dtype != np.float32:
        return op
    first, *rest = (*steps_of(op.epilogue, inputs), ops.Step("relu"))
    if first.scale is None:
        return op
    steps = (replace(first, scale=np.ones_like(first.scale)), *rest[:-1])
    weight = op.weight * first.scale[:, None, None, None]
    return replace(op, weight=weight, epilogue=from_steps(steps, op.epilogue.emit))
