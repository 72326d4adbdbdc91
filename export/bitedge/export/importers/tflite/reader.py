"""Read a TFLite file as a torch module."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bitedge.export.errors import ExportError
from bitedge.export.importers.module import ImportedModule, Wire, constant
from bitedge.export.importers.tflite.flatbuffer import OperatorInfo, TensorInfo, TfliteFile, load
from bitedge.export.importers.tflite.operators import OPERATORS, REFUSALS
from bitedge.export.importers.tflite.shapes import channels_first

_LARGEST = 2**26


@dataclass(frozen=True, eq=False)
class TfliteModel:
    """A TFLite file, the module that computes the same, and the tensor that each layer makes."""

    path: Path
    file: TfliteFile
    module: ImportedModule
    shape: tuple[int, int, int]
    channels: dict[int, int]
    """Of tensors of bits, by number: how many channels they hold."""


def read(path: Path) -> TfliteModel:
    """Read a file; whatever is wrong with it, or not supported, is an `ExportError`."""
    file = load(path)
    entry = file.tensors[file.input]
    if entry.kind is not np.float32 or entry.quantized or file.tensors[file.output].kind is not np.float32:
        raise ExportError(
            f"{path}: expected an input and an output of float32, got {entry.kind.__name__} and "
            f"{file.tensors[file.output].kind.__name__}; convert the network without int8 ends"
        )
    if len(entry.shape) not in (2, 4) or min(entry.shape) < 1 or entry.shape[0] != 1:
        raise ExportError(f"{path}: expected an input [1, H, W, C] or [1, F], got {list(entry.shape)}")
    if int(np.prod(np.array(entry.shape, object))) > _LARGEST:
        raise ExportError(f"{path}: an image of {list(entry.shape[1:])} is too large to be real")
    height, width, channels = entry.shape[1:] if len(entry.shape) == 4 else (1, 1, entry.shape[1])
    reader = _Reader(file, (channels, height, width))
    return TfliteModel(path, file, reader.module, (channels, height, width), reader.channels)


def _name(number: int) -> str:
    return f"tensor {number}"


class _Reader:
    """Walks over the operators; each becomes a layer."""

    def __init__(self, file: TfliteFile, shape: tuple[int, int, int]) -> None:
        self._file = file
        self.channels: dict[int, int] = {}
        self._folded: dict[int, NDArray[Any]] = {}
        self.module = ImportedModule("image", shape)
        flat = len(file.tensors[file.input].shape) == 2
        arrange = (lambda x: x.flatten(1)) if flat else (lambda x: x)
        self.module.add("input", "input", arrange, [Wire("image")], [_name(file.input)])
        for operator in file.operators:
            self._add(operator)
        self.module.answer = _name(file.output)
        if not self.module.made(self.module.answer):
            raise ExportError("the answer of the network does not depend on its image")

    def _add(self, info: OperatorInfo) -> None:
        result = self._file.tensors[info.outputs[0]]
        name = result.name.split(";")[0][-60:] or info.kind
        operator = OPERATORS.get(info.kind)
        if info.kind == "DEQUANTIZE" and self._constant(info.inputs[0]) is not None and self._half(info):
            return
        if operator is None:
            why = REFUSALS.get(info.kind, f"is not supported. Supported: {', '.join(OPERATORS)}")
            raise ExportError(f"layer {name!r}: the operator {info.kind} {why}")
        for number in (*info.inputs, *info.outputs):
            self._check(name, info, number)
        arguments: list[Any] = [{**info.options, "_shape": result.shape}]
        if info.kind == "LceBconv2d":
            arguments += self._binary(name, info)
        else:
            arguments += [self._argument(name, number, operator.static) for number in info.inputs]
        self._note_channels(info)
        outputs = [_name(number) for number in info.outputs]
        if not any(isinstance(argument, Wire) for argument in arguments):
            raise ExportError(
                f"layer {name!r}: the operator {info.kind} works on constants alone, which is not supported"
            )
        self.module.add(name, info.kind, operator.function, arguments, outputs)

    def _half(self, info: OperatorInfo) -> bool:
        """Take half-precision weights as numbers."""
        stored = self._file.tensors[info.inputs[0]]
        if stored.kind is not np.float16 or stored.data is None:
            return False
        self._folded[info.outputs[0]] = stored.data.astype(np.float32)
        return True

    def _check(self, name: str, info: OperatorInfo, number: int) -> None:
        if number >= 0 and (tensor := self._file.tensors[number]).kind in (np.int8, np.uint8, np.int16):
            raise ExportError(
                f"layer {name!r}: {info.kind} has a tensor of {tensor.kind.__name__}; int8 tensors are not read, "
                "convert the network without int8 quantization"
            )

    def _constant(self, number: int) -> NDArray[Any] | None:
        return self._folded.get(number, self._file.tensors[number].data) if number >= 0 else None

    def _argument(self, name: str, number: int, static: bool) -> Any:
        if number < 0:
            return None
        if self.module.made(_name(number)):
            return Wire(_name(number))
        known = self._constant(number)
        if known is None:
            raise ExportError(f"layer {name!r} reads {self._file.tensors[number].name!r}, which nothing makes")
        if static:
            return known
        return constant(known)

    def _binary(self, name: str, info: OperatorInfo) -> list[Any]:
        """Give the arguments of a binary convolution: unpacked weights, and sums in place of counts as thresholds."""
        if len(info.inputs) < 4:
            raise ExportError(f"layer {name!r}: LceBconv2d has {len(info.inputs)} inputs, expected 5")
        source = self._argument(name, info.inputs[0], static=False)
        packed, multiplier, bias = (self._constant(number) for number in info.inputs[1:4])
        counts = self._constant(info.inputs[4]) if len(info.inputs) > 4 else None
        if not isinstance(source, Wire) or packed is None or packed.ndim != 4 or packed.dtype != np.int32:
            raise ExportError(f"layer {name!r}: LceBconv2d needs bits and constant weights [O, H, W, words] of int32")
        weight = unpack(packed, _per_group(name, packed, int(info.options.get("channels_in", 0))))
        bits = self._file.tensors[info.outputs[0]].kind is np.int32
        if bits and counts is None:
            raise ExportError(f"layer {name!r}: LceBconv2d gives bits but has no thresholds")
        ordered = torch.from_numpy(np.ascontiguousarray(weight.transpose(0, 3, 1, 2)))
        if bits and counts is not None:
            taps = weight[0].size
            threshold = taps - 2 * np.clip(counts.astype(np.int64), -1, taps)
            return [source, ordered, None, None, torch.from_numpy(threshold.astype(np.float32))]
        scaled = [None if array is None else constant(array) for array in (multiplier, bias)]
        if all(isinstance(array, Tensor) for array in scaled) and _trivial(multiplier, bias):
            scaled = [None, None]
        return [source, ordered, *scaled, None]

    def _note_channels(self, info: OperatorInfo) -> None:
        """Remember how many channels a tensor of bits holds: its shape counts words."""
        if self._file.tensors[info.outputs[0]].kind is not np.int32:
            return
        if info.kind == "LceQuantize":
            self.channels[info.outputs[0]] = self._file.tensors[info.inputs[0]].shape[-1]
        elif info.kind == "LceBconv2d":
            self.channels[info.outputs[0]] = self._file.tensors[info.inputs[1]].shape[0]
        elif info.inputs[0] in self.channels:
            self.channels[info.outputs[0]] = self.channels[info.inputs[0]]


def _trivial(multiplier: NDArray[Any] | None, bias: NDArray[Any] | None) -> bool:
    return multiplier is not None and bias is not None and bool((multiplier == 1).all() and (bias == 0).all())


def _per_group(name: str, packed: NDArray[Any], channels: int) -> int:
    """Give the input channels of a group: all, or whole words of them."""
    words = packed.shape[3]
    if channels < 1 or words < 1:
        raise ExportError(f"layer {name!r}: LceBconv2d with {channels} input channels cannot be")
    if words == -(-channels // 32):
        return channels
    if channels % (32 * words):
        raise ExportError(f"layer {name!r}: {words} words of weights do not fit {channels} input channels")
    return 32 * words


def unpack(words: NDArray[Any], channels: int) -> NDArray[np.float32]:
    """Unpack int32 words along the last axis, least significant bit first: a set bit is -1."""
    octets = np.ascontiguousarray(words.astype("<i4")).view(np.uint8)
    bits = np.unpackbits(octets, axis=-1, bitorder="little")[..., :channels]
    return (1 - 2 * bits.astype(np.int8)).astype(np.float32)


def arrange(tensor: TensorInfo, array: NDArray[Any], channels: int | None) -> NDArray[Any] | None:
    """Give a tensor of the engine as torch has it; None if it is neither numbers nor bits."""
    if channels is not None:
        array = unpack(array, channels)
    elif tensor.kind is not np.float32:
        return None
    return np.ascontiguousarray(channels_first(torch.from_numpy(np.ascontiguousarray(array))).numpy())
