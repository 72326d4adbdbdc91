"""The writer of `model.int8.onnx`: the same network through onnxruntime's integer kernels, stock operators only.

A bit is a uint8 of 0 or 2 with zero point 1, so that -1, 0 and +1 are all there: 0 is what an integer convolution
pads with by itself. Weights are int8 ±1. Every product is an exact int32 sum.

**Thresholds** ride on QLinearConv, the fastest integer convolution: with the bias 1 - t and scales 1, 1 and 1/2 its
output is saturate(2·(acc - t + 1)): 0 below the threshold and at least 2 from there on, whatever the rounding. Clipped
to [0, 2] that is the bit.

**Sums that stay numbers** (before a residual) do not fit QLinearConv's eight bits. They go through MatMulInteger, whose
int32 sums come out whole, over windows that one Gather lines up. onnxruntime's ConvInteger would do the same in one
operator, at two thirds of the speed, and only with unsigned weights: with signed ones it falls back to a scalar loop.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from bitedge.export import ops
from bitedge.export.bundle import Bundle
from bitedge.export.graph import Node, Shape
from bitedge.export.onnx_builder import Layout, save
from bitedge.export.onnx_emitter import OnnxEmitter

MAX_INDEX = 2**18  # entries of a Gather: beyond it (a map of 170x170 under 3x3) the file would hold a megabyte of index


def write(bundle: Bundle, path: Path) -> None:
    """Write the int8 ONNX file."""
    save(Int8Emitter(bundle.lowered).emit(bundle), path)


class Int8Emitter(OnnxEmitter):
    """Bits as uint8 {0, 2} around the zero point 1."""

    PLUS: ClassVar[Any] = np.uint8(2)
    MINUS: ClassVar[Any] = np.uint8(0)

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
        if isinstance(op.epilogue, ops.Affine) and op.window.groups == 1 and self._index_size(node, op) <= MAX_INDEX:
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
        window = self.window(op.window) | {"group": op.window.groups} | ({} if pad else {"pads": [0] * 4})
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
        self._affine(node, acc, "NCHW")

    def _matmul(self, node: Node, op: ops.BinaryConv2d) -> None:
        """Line up the taps of every output pixel, `[N, pixels, taps]`, and multiply by `[taps, outputs]`."""
        name, shape = node.outputs[0], self.values[node.inputs[0]].shape
        rows, columns = op.window.output_size(shape[0], shape[1])
        matrix = op.weight.reshape(len(op.weight), -1).T  # taps in the order height, width, channel
        pixels = self.to.reshape(self.to.get(node.inputs[0], "NHWC"), [0, -1, shape[2]], f"{name}/pixels")
        if not self.is_dense(node, op):
            index = windows_index(shape, op.window)
            if (index == shape[0] * shape[1]).any():
                beyond = self.to.constant(np.array([0, 0, 0, 0, 1, 0]), "one_more_pixel")
                pixels = self.to.add("Pad", [pixels, beyond, self._bit(op.pad_value)], f"{name}/padded")
            if op.window.kernel != (1, 1) or len(index) != shape[0] * shape[1] or (np.diff(index) != 1).any():
                pixels = self.to.add(
                    "Gather", [pixels, self.to.constant(index, f"{name}/taps")], f"{name}/windows", axis=1
                )
        windows = self.to.reshape(pixels, [0, rows * columns, len(matrix)], f"{name}/columns")
        stored = self.to.signs(matrix, matrix.shape, np.array([1, -1], np.int8), f"{name}/weight")
        acc = self.to.add("MatMulInteger", [windows, stored, self._bit(0)], f"{name}/acc")
        acc = self.to.reshape(acc, [0, rows, columns, len(op.weight)], f"{name}/map")
        self._affine(node, acc, "NHWC")

    def _affine(self, node: Node, acc: str, layout: Layout) -> None:
        epilogue = ops.epilogue_of(node.op)
        if isinstance(epilogue, ops.Affine) and epilogue.scale is None:
            acc = self.to.add("Cast", [acc], f"{node.outputs[0]}/sum", to=TensorProto.FLOAT)
        self.epilogue(node, acc, layout, exact=True)

    def _index_size(self, node: Node, op: ops.BinaryConv2d) -> int:
        rows, columns = self.values[node.outputs[0]].shape[:2]
        return 0 if self.is_dense(node, op) else rows * columns * int(np.prod(op.window.kernel))


def windows_index(shape: Shape, window: ops.Window) -> NDArray[np.int32]:
    """Give the pixel of every tap, `[rows · columns · KH · KW]`; the pixel after the last one stands for padding."""
    height, width, _ = shape

    def taps(axis: int) -> NDArray[Any]:
        starts = np.arange(window.output_size(height, width)[axis]) * window.stride[axis] - window.pads[axis]
        return starts[:, None] + np.arange(window.kernel[axis]) * window.dilation[axis]

    y, x = taps(0)[:, None, :, None], taps(1)[None, :, None, :]
    inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
    return np.where(inside, y * width + x, height * width).astype(np.int32).reshape(-1)
