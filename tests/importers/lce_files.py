"""TFLite files with one binary layer of Larq Compute Engine and any of its options, written by TensorFlow's schema."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
from flatbuffers import flexbuffers
from numpy.typing import NDArray

from bitedge.export.importers.tflite.flatbuffer import schema

OUTPUTS = 10


@dataclass(frozen=True)
class Case:
    """The options of one LceBconv2d, drawn from a seed."""

    seed: int
    size: tuple[int, int]
    inputs: int
    outputs: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    same: bool
    pad_value: int
    activation: int
    bits: bool
    pooled: bool

    @property
    def zero_padded(self) -> bool:
        return self.same and self.pad_value == 0

    def result_size(self) -> tuple[int, int]:
        spans = [d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel, strict=True)]
        rows = [
            -(-n // s) if self.same else (n - span) // s + 1
            for n, s, span in zip(self.size, self.stride, spans, strict=True)
        ]
        return rows[0], rows[1]


def draw(seed: int) -> Case:
    """Draw a case that Larq Compute Engine computes as defined.

    It has zero padding for float results without activation only, and is wrong for some strides beyond the map.
    """
    rng = np.random.default_rng(seed)
    pick: Any = rng.choice
    kernel = (int(pick([1, 2, 3, 5])), int(pick([1, 2, 3, 5])))
    dilation = (int(pick([1, 1, 2])), int(pick([1, 1, 2])))
    spans = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    size = (spans[0] + int(rng.integers(0, 7)), spans[1] + int(rng.integers(0, 7)))
    bits = bool(rng.integers(2))
    activation = int(pick([0, 0, 1, 2, 3])) if not bits else 0
    pad_value = 1 if bits or activation else int(rng.integers(2))
    return Case(
        seed=seed,
        size=size,
        inputs=int(pick([1, 3, 31, 32, 33, 64, 65, 96])),
        outputs=int(pick([1, 4, 7, 32, 33, 64])),
        kernel=kernel,
        stride=(min(int(pick([1, 1, 2, 3])), size[0]), min(int(pick([1, 1, 2, 3])), size[1])),
        dilation=dilation,
        same=bool(rng.integers(2)),
        pad_value=pad_value,
        activation=activation,
        bits=bits,
        pooled=bool(rng.integers(2)),
    )


class _File:
    """Collects tensors and operators of one graph."""

    def __init__(self) -> None:
        self._s = schema()
        self.model = self._s.ModelT()
        self.model.version = 3
        self.model.buffers = [self._s.BufferT()]
        self.graph = self._s.SubGraphT()
        self.graph.tensors, self.graph.operators, self.model.operatorCodes = [], [], []
        self.model.subgraphs = [self.graph]

    def tensor(self, name: str, shape: tuple[int, ...], kind: int = 0, data: NDArray[Any] | None = None) -> int:
        tensor = self._s.TensorT()
        tensor.name, tensor.shape, tensor.type, tensor.buffer = name.encode(), list(shape), kind, 0
        if data is not None:
            buffer = self._s.BufferT()
            buffer.data = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
            self.model.buffers.append(buffer)
            tensor.buffer = len(self.model.buffers) - 1
        self.graph.tensors.append(tensor)
        return len(self.graph.tensors) - 1

    def constant(self, name: str, array: NDArray[Any]) -> int:
        return self.tensor(name, array.shape, 2 if array.dtype == np.int32 else 0, array)

    def add(self, kind: str, inputs: list[int], output: int, options: Any = None) -> None:
        code = self._s.OperatorCodeT()
        operator = self._s.OperatorT()
        operator.inputs, operator.outputs = inputs, [output]
        if kind.startswith("Lce"):
            code.builtinCode = code.deprecatedBuiltinCode = self._s.BuiltinOperator.CUSTOM
            code.customCode = kind.encode()
            operator.customOptions = np.frombuffer(bytes(flexbuffers.Dumps(options)), np.uint8) if options else None
        else:
            code.builtinCode = code.deprecatedBuiltinCode = getattr(self._s.BuiltinOperator, kind)
            operator.builtinOptionsType, operator.builtinOptions = options
        code.version = 1
        self.model.operatorCodes.append(code)
        operator.opcodeIndex = len(self.model.operatorCodes) - 1
        self.graph.operators.append(operator)

    def save(self, path: Path, entry: int, answer: int) -> None:
        self.graph.inputs, self.graph.outputs = [entry], [answer]
        builder = flatbuffers.Builder(1024)
        builder.Finish(self.model.Pack(builder), b"TFL3")
        path.write_bytes(bytes(builder.Output()))

    def reshape(self, source: int, output: int, shape: tuple[int, ...]) -> None:
        options = self._s.ReshapeOptionsT()
        options.newShape = list(shape)
        wanted = self.constant("shape", np.array(shape, np.int32))
        self.add("RESHAPE", [source, wanted], output, (self._s.BuiltinOptions.ReshapeOptions, options))

    def dense(self, source: int, weight: int, output: int) -> None:
        options = self._s.FullyConnectedOptionsT()
        self.add(
            "FULLY_CONNECTED", [source, weight, -1], output, (self._s.BuiltinOptions.FullyConnectedOptions, options)
        )


def words(channels: int) -> int:
    return -(-channels // 32)


def pack(signs: NDArray[np.int8]) -> NDArray[np.int32]:
    """Pack ±1 along the last axis into int32 words, a set bit for -1, least significant bit first."""
    bits = np.zeros((*signs.shape[:-1], 32 * words(signs.shape[-1])), np.uint8)
    bits[..., : signs.shape[-1]] = signs < 0
    return np.packbits(bits, axis=-1, bitorder="little").view("<i4").astype(np.int32)


def write(case: Case, path: Path) -> None:
    """Write: image, LceQuantize, LceBconv2d, its bits, perhaps LceBMaxPool2d, LceDequantize, a dense layer."""
    rng = np.random.default_rng(case.seed + 1_000_000)
    file = _File()
    rows, columns = case.result_size()
    taps = case.kernel[0] * case.kernel[1] * case.inputs
    entry = file.tensor("image", (1, *case.size, case.inputs))
    quantized = file.tensor("quantized", (1, *case.size, words(case.inputs)), 2)
    file.add("LceQuantize", [entry], quantized)
    signs = (rng.integers(0, 2, (case.outputs, *case.kernel, case.inputs)) * 2 - 1).astype(np.int8)
    filters = file.constant("filters", pack(signs))
    options = {
        "channels_in": case.inputs,
        "dilation_height_factor": case.dilation[0],
        "dilation_width_factor": case.dilation[1],
        "fused_activation_function": case.activation,
        "pad_values": case.pad_value,
        "padding": 0 if case.same else 1,
        "stride_height": case.stride[0],
        "stride_width": case.stride[1],
    }
    depth = words(case.outputs) if case.bits else case.outputs
    product = file.tensor("product", (1, rows, columns, depth), 2 if case.bits else 0)
    if case.bits:
        counts = file.constant("thresholds", rng.integers(-1, taps + 1, case.outputs).astype(np.int32))
        file.add("LceBconv2d", [quantized, filters, -1, -1, counts], product, options)
    else:
        multiplier = rng.normal(size=case.outputs).astype(np.float32)
        bias = (rng.normal(size=case.outputs) * 3).astype(np.float32)
        scaling = [file.constant("multiplier", multiplier), file.constant("bias", bias)]
        file.add("LceBconv2d", [quantized, filters, *scaling, -1], product, options)
    _finish(file, case, product, rng, path, entry)


def _finish(file: _File, case: Case, product: int, rng: np.random.Generator, path: Path, entry: int) -> None:
    rows, columns = case.result_size()
    bits = product
    if not case.bits:
        bits = file.tensor("bits", (1, rows, columns, words(case.outputs)), 2)
        file.add("LceQuantize", [product], bits)
    if case.pooled:
        pooled = ((rows + 1) // 2, (columns + 1) // 2)
        below = file.tensor("pooled", (1, *pooled, words(case.outputs)), 2)
        options = {"filter_height": 2, "filter_width": 2, "padding": 0, "stride_height": 2, "stride_width": 2}
        file.add("LceBMaxPool2d", [bits], below, options)
        bits, (rows, columns) = below, pooled
    numbers = file.tensor("numbers", (1, rows, columns, case.outputs))
    file.add("LceDequantize", [bits], numbers)
    count = rows * columns * case.outputs
    flat = file.tensor("flat", (1, count))
    file.reshape(numbers, flat, (1, count))
    weight = file.constant("weight", rng.integers(-8, 9, (OUTPUTS, count)).astype(np.float32))
    answer = file.tensor("answer", (1, OUTPUTS))
    file.dense(flat, weight, answer)
    file.save(path, entry, answer)
