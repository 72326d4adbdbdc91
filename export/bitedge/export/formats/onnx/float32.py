"""The writer of `model.onnx`: stock operators in float32, where a bit is ±1.0 and every integer sum is exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from bitedge.export.formats.bundle import Bundle
from bitedge.export.formats.onnx.builder import save
from bitedge.export.formats.onnx.emitter import OnnxEmitter
from bitedge.export.ir import ops
from bitedge.export.ir.graph import Node


def write(bundle: Bundle, path: Path) -> None:
    """Write the float ONNX file."""
    save(FloatEmitter(bundle.lowered).emit(bundle), path)


class FloatEmitter(OnnxEmitter):
    """Bits as ±1.0; a convolution with ±1 weights is a float convolution, and exact."""

    PLUS: ClassVar[Any] = np.float32(1)
    MINUS: ClassVar[Any] = np.float32(-1)

    def binary_conv2d(self, node: Node, op: ops.BinaryConv2d) -> None:
        """Convolve ±1.0 with ±1.0; 0 is the padding that ONNX has itself."""
        x = self.to.get(node.inputs[0], "NCHW")
        own_padding = op.pad_value == 0 or not any(op.window.pads)
        if not own_padding:
            top, left, bottom, right = op.window.pads
            pads = self.to.constant(np.array([0, 0, top, left, 0, 0, bottom, right]), f"{node.outputs[0]}/pads")
            value = self.to.constant(np.float32(op.pad_value), "plus" if op.pad_value > 0 else "minus")
            x = self.to.add("Pad", [x, pads, value], f"{node.outputs[0]}/padded")
        self.epilogue(node, self.float_signs_conv(node, op, x, pad=own_padding), "NCHW")
