"""The writer of `model.int8.onnx`: the same network through onnxruntime's integer kernels, stock operators only.

A bit is a uint8 of 0 or 2 with zero point 1, so that -1, 0 and +1 are all there: 0 is what an integer convolution
pads with by itself. Weights are int8 ±1. Every product is an exact int32 sum.

**Thresholds** ride on QLinearConv, the fastest integer convolution: with the bias 1 - t and scales 1, 1 and 1/2 its
output is saturate(2·(acc - t + 1)): 0 below the threshold and at least 2 from there on, whatever the rounding. Clipped
to [0, 2] that is the bit.

**Sums that stay numbers** (before a residual) do not fit QLinearConv's eight bits. They go through MatMulInteger, whose
int32 sums come out whole, over windows lined up by `windows.py`. onnxruntime's ConvInteger would do the same in one
operator, at two thirds of the speed, and only with unsigned weights: with signed ones it falls back to a scalar loop.
Scale and bias follow in float32, within the same operator, where float layers have gone before: there every engine
rounds in its own way. Where only integers lead to the sum, they are rounded once, as torch does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from bitedge.export.formats.bundle import Bundle
from bitedge.export.formats.onnx.builder import Layout, save
from bitedge.export.formats.onnx.emitter import OnnxEmitter
from bitedge.export.formats.onnx.layers import window_attributes
from bitedge.export.formats.onnx.windows import index_size, line_up
from bitedge.export.ir import ops
from bitedge.export.ir.epilogue import steps_of
from bitedge.export.ir.exactness import exact_values
from bitedge.export.ir.graph import Graph, Node

MAX_INDEX = 2**18  # entries of a Gather: beyond it (a map of 170x170 under 3x3) the file would hold a megabyte of index


def write(bundle: Bundle, path: Path) -> None:
    """Write the int8 ONNX file."""
    save(Int8Emitter(bundle.lowered).emit(bundle), path)


class Int8Emitter(OnnxEmitter):
    """Bits as uint8 {0, 2} around the zero point 1."""

    PLUS: ClassVar[Any] = np.uint8(2)
    MINUS: ClassVar[Any] = np.uint8(0)

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self._exact = exact_values(graph)
        self._one: str | None = None

    def rounds_once(self, node: Node) -> bool:
        """Only what every engine must give to the last bit: elsewhere onnxruntime scales within the product."""
        return super().rounds_once(node) and node.outputs[0] in self._exact

    def elementwise_layout(self, node: Node) -> Layout:
        """Channels last where only matrix products read the bits."""
        readers = [other for other in self.graph.nodes if node.outputs[-1] in other.inputs]
        products = bool(readers) and all(self._is_product(reader) for reader in readers)
        return "NHWC" if products else super().elementwise_layout(node)

    def at_least(self, x: str, limit: str, name: str) -> str:
        """Bits: 2 where x >= limit, else 0; a truth value is a byte of 1 or 0, and its double takes one cheap pass."""
        condition = self.to.add("GreaterOrEqual", [x, limit], f"{name}/positive")
        byte = self.to.add("Cast", [condition], f"{name}/one", to=TensorProto.UINT8)
        return self.to.add("Add", [byte, byte], name)

    def as_float(self, value: str, layout: Layout) -> str:
        """Give a value as floats: bits as ±1."""
        x = self.to.get(value, layout)
        if not self.is_bits(value):
            return x
        x = self.to.add("Cast", [x], f"{value}/wide", to=TensorProto.FLOAT)
        return self.to.add("Sub", [x, self.to.constant(np.float32(1), "one")], f"{value}/float")

    def image_conv2d(self, node: Node, op: ops.ImageConv2d) -> None:
        """Convolve pixels with ±1 weights: Σ w·(2u - 255) = Σ w·u - Σ w·(255 - u), so that 0 pads either half."""
        if op.window.groups > 1:
            super().image_conv2d(node, op)
            return
        pixels = self.to.get(node.inputs[0], "NCHW")
        inverse = self.to.add("Sub", [self.to.constant(np.uint8(255), "white"), pixels], "pixels/inverse")
        twins = self.to.add("Concat", [pixels, inverse], "pixels/twins", axis=1)
        weight = np.concatenate([op.weight, -op.weight], axis=3)
        self._convolve(node, op, twins, weight, zero=self.to.constant(np.uint8(0), "nothing"))

    def binary_conv2d(self, node: Node, op: ops.BinaryConv2d) -> None:
        """Convolve bits with ±1 weights."""
        if self._is_product(node):
            self._matmul(node, op)
            return
        x = self.to.get(node.inputs[0], "NCHW")
        if op.pad_value:
            top, left, bottom, right = op.window.pads
            pads = self.to.constant(np.array([0, 0, top, left, 0, 0, bottom, right]), f"{node.outputs[0]}/pads")
            x = self.to.add("Pad", [x, pads, self._bit(op.pad_value)], f"{node.outputs[0]}/padded")
        self._convolve(node, op, x, op.weight, zero=self._bit(0), pad=not op.pad_value)

    def _bit(self, value: int) -> str:
        return self.to.constant(np.uint8(value + 1), ("minus", "nothing", "plus")[value + 1])

    def _convolve(
        self,
        node: Node,
        op: ops.BinaryConv2d | ops.ImageConv2d,
        x: str,
        weight: NDArray[np.int8],
        *,
        zero: str,
        pad: bool = True,
    ) -> None:
        """QLinearConv for bits, ConvInteger for sums; both pad with the zero point."""
        name, weight = node.outputs[0], weight.transpose(0, 3, 1, 2)
        window = window_attributes(op.window) | {"group": op.window.groups} | ({} if pad else {"pads": [0] * 4})
        if isinstance(op.epilogue, ops.Threshold):
            one, none = self.to.constant(np.float32(1), "one"), self.to.constant(np.int8(0), "symmetric")
            stored = self.to.signs(weight, weight.shape, np.array([1, -1], np.int8), f"{name}/weight")
            bias = self.to.constant((1 - op.epilogue.threshold).astype(np.int32), f"{name}/bias")
            half, low = self.to.constant(np.float32(0.5), "half"), self.to.constant(self.MINUS, "minus")
            inputs = [x, one, zero, stored, one, none, half, low, bias]
            y = self.to.add("QLinearConv", inputs, f"{name}/margin", **window)
            self.to.put(name, self.to.add("Clip", [y, low, self.to.constant(self.PLUS, "plus")], name), "NCHW")
            return
        stored = self.to.signs(weight, weight.shape, np.array([2, 0], np.uint8), f"{name}/weight")
        acc = self.to.add("ConvInteger", [x, stored, zero, self._bit(0)], f"{name}/acc", **window)
        self._sums(node, acc, "NCHW")

    def _matmul(self, node: Node, op: ops.BinaryConv2d) -> None:
        """Line up the windows, `[N, rows, columns, taps]`, and multiply by `[taps, outputs]`."""
        name, shape = node.outputs[0], self.values[node.inputs[0]].shape
        matrix = op.weight.reshape(len(op.weight), -1).T  # taps in the order height, width, channel
        bits = self.to.get(node.inputs[0], "NHWC")
        windows = line_up(self.to, bits, shape, op.window, self._bit(op.pad_value), name)
        stored = self.to.signs(matrix, matrix.shape, np.array([1, -1], np.int8), f"{name}/weight")
        acc = self.to.add("MatMulInteger", [windows, stored, self._bit(0)], f"{name}/acc")
        self._sums(node, acc, "NHWC")

    def _sums(self, node: Node, acc: str, layout: Layout) -> None:
        """Scale the int32 sums: in double from there, or as floats."""
        epilogue = ops.epilogue_of(node.op)
        assert isinstance(epilogue, ops.Affine | ops.Steps)
        first = next(iter(steps_of(epilogue, len(node.inputs))), None)
        if first is None or first.kind != "fma" or not self.rounds_once(node):
            acc = self.to.add("Cast", [acc], f"{node.outputs[0]}/sum", to=TensorProto.FLOAT)
        self.epilogue(node, acc, layout)

    def factor(self, node: Node, scale: NDArray[Any], name: str) -> str:
        """Behind a product, the scale times a 1 that is known at run time only.

        onnxruntime makes one operator of a product, Cast, Mul and Add if the factor is a product too. A product of
        constants would be folded before it looks.
        """
        stored = super().factor(node, scale, name)
        if not self._is_product(node) or self.rounds_once(node):
            return stored
        return self.to.add("Mul", [self._unit(), stored], f"{name}/unfolded")

    def _unit(self) -> str:
        """Give 1: the size of the batch, divided by itself."""
        if self._one is None:
            batch = self.to.add("Shape", [self.graph.input.name], "batch/shape", start=0, end=1)
            batch = self.to.add("Cast", [batch], "batch/float", to=TensorProto.FLOAT)
            self._one = self.to.add("Div", [batch, batch], "unit")
        return self._one

    def _is_product(self, node: Node) -> bool:
        """Tell whether a layer of bits becomes a matrix product."""
        op = node.op
        if (
            not isinstance(op, ops.BinaryConv2d)
            or not isinstance(op.epilogue, ops.Affine | ops.Steps)
            or op.window.groups > 1
        ):
            return False
        return index_size(self.values[node.inputs[0]].shape, op.window) <= MAX_INDEX
