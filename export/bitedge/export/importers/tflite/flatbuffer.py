"""Read a TFLite file by TensorFlow's own schema, without loading TensorFlow; a damaged file is an `ExportError`."""

from __future__ import annotations

import importlib.util
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from flatbuffers import flexbuffers
from numpy.typing import NDArray

from bitedge.export.errors import ExportError

_MOST = 100_000  # tensors, operators, buffers
_KINDS: Mapping[int, type[np.generic]] = {
    0: np.float32,
    1: np.float16,
    2: np.int32,
    3: np.uint8,
    4: np.int64,
    6: np.bool_,
    7: np.int16,
    9: np.int8,
}


@dataclass(frozen=True, eq=False)
class TensorInfo:
    """A tensor: constant where it has data."""

    name: str
    shape: tuple[int, ...]
    kind: type[np.generic]
    data: NDArray[Any] | None
    quantized: bool


@dataclass(frozen=True, eq=False)
class OperatorInfo:
    """An operator: its name, its options, and the numbers of its tensors (-1: none)."""

    kind: str
    options: Mapping[str, Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class TfliteFile:
    """One graph."""

    tensors: tuple[TensorInfo, ...]
    operators: tuple[OperatorInfo, ...]
    input: int
    output: int


@cache
def schema() -> ModuleType:
    """Load the generated schema of TensorFlow's package from its file."""
    found = importlib.util.find_spec("tensorflow")
    places = list(found.submodule_search_locations or ()) if found is not None else []
    if not places:
        raise ExportError("reading TFLite needs tensorflow, which is not installed; run: pip install 'bitedge[tflite]'")
    name = "bitedge_tflite_schema"
    spec = importlib.util.spec_from_file_location(name, Path(places[0]) / "lite" / "python" / "schema_py_generated.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def load(path: Path) -> TfliteFile:
    """Read a file."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ExportError(f"cannot read {path}: {error.strerror}") from error
    if len(content) < 16 or content[4:8] != b"TFL3":
        raise ExportError(f"{path} is not a TFLite file: it does not begin with the identifier TFL3")
    try:
        return _Reader(content).read()
    except ExportError as error:
        raise ExportError(f"{path}: {error}") from error
    except (
        struct.error,
        IndexError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
        MemoryError,
    ) as error:
        raise ExportError(f"{path} is a damaged TFLite file: {type(error).__name__} while reading it") from error


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self._schema = schema()
        self._model = self._schema.Model.GetRootAs(content, 0)
        self._names = {v: k for k, v in vars(self._schema.BuiltinOperator).items() if isinstance(v, int)}

    def read(self) -> TfliteFile:
        if self._count(self._model.SubgraphsLength(), "graphs") != 1:
            raise ExportError(f"expected one graph, got {self._model.SubgraphsLength()}")
        graph = self._model.Subgraphs(0)
        count = self._count(graph.TensorsLength(), "tensors")
        tensors = tuple(self._tensor(graph.Tensors(i)) for i in range(count))
        operators = tuple(
            self._operator(graph.Operators(i), count) for i in range(self._count(graph.OperatorsLength(), "operators"))
        )
        ends = []
        for what, numbers in (("input", graph.InputsAsNumpy()), ("output", graph.OutputsAsNumpy())):
            if np.size(numbers) != 1 or not 0 <= int(np.ravel(numbers)[0]) < count:
                raise ExportError(f"expected one {what}, got {np.size(numbers)}")
            ends.append(int(np.ravel(numbers)[0]))
        return TfliteFile(tensors, operators, ends[0], ends[1])

    def _count(self, number: int, what: str) -> int:
        if not 0 <= number <= min(_MOST, len(self._content)):
            raise ExportError(f"the file says that it has {number} {what}, which cannot be")
        return number

    def _tensor(self, tensor: Any) -> TensorInfo:
        shape = tuple(int(size) for size in np.ravel(tensor.ShapeAsNumpy())) if self._fits(tensor.ShapeLength()) else ()
        kind = _KINDS.get(tensor.Type())
        if kind is None:
            raise ExportError(f"a tensor of type {tensor.Type()} is not supported")
        name = (tensor.Name() or b"").decode("utf-8", "replace")
        quantization = tensor.Quantization()
        quantized = quantization is not None and quantization.ScaleLength() > 0
        buffer = self._model.Buffers(tensor.Buffer()) if tensor.Buffer() < self._model.BuffersLength() else None
        data = None
        if buffer is not None and buffer.DataLength() > 0:
            data = self._data(name, buffer, shape, kind)
        return TensorInfo(name, shape, kind, data, quantized)

    def _fits(self, length: int) -> bool:
        if not 0 <= length <= 8:
            raise ExportError(f"a tensor of {length} dimensions is not supported")
        return length > 0

    def _data(self, name: str, buffer: Any, shape: tuple[int, ...], kind: type[np.generic]) -> NDArray[Any]:
        size = buffer.DataLength()
        if size > len(self._content):
            raise ExportError(f"the tensor {name!r} says that it has {size} bytes, more than the file")
        raw = np.ascontiguousarray(buffer.DataAsNumpy())
        wanted = int(np.prod(np.array(shape, object))) * np.dtype(kind).itemsize if shape else np.dtype(kind).itemsize
        if min(shape, default=0) < 0 or raw.nbytes != wanted:
            raise ExportError(f"the tensor {name!r} has {raw.nbytes} bytes for the shape {list(shape)}")
        return raw.view(kind).reshape(shape)

    def _operator(self, operator: Any, count: int) -> OperatorInfo:
        if operator.OpcodeIndex() >= self._model.OperatorCodesLength():
            raise ExportError("an operator has no code")
        code = self._model.OperatorCodes(operator.OpcodeIndex())
        number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        kind = self._names.get(number, f"operator {number}")
        wires = []
        for length, read in ((operator.InputsLength(), operator.Inputs), (operator.OutputsLength(), operator.Outputs)):
            wires.append(tuple(int(read(i)) for i in range(self._count(length, "wires"))))
        if any(not -1 <= wire < count for row in wires for wire in row) or not wires[1]:
            raise ExportError(f"an operator {kind} reads or makes a tensor that is not there")
        if kind == "CUSTOM":
            kind = (code.CustomCode() or b"").decode("utf-8", "replace")
            return OperatorInfo(kind, self._custom(kind, operator), *wires)
        return OperatorInfo(kind, self._builtin(operator), *wires)

    def _custom(self, kind: str, operator: Any) -> Mapping[str, Any]:
        size = operator.CustomOptionsLength()
        if not kind.startswith("Lce") or size == 0:
            return {}
        if size > 4096:
            raise ExportError(f"the options of {kind} have {size} bytes, which cannot be")
        found = flexbuffers.Loads(bytes(operator.CustomOptionsAsNumpy()))
        if not isinstance(found, dict):
            raise ExportError(f"the options of {kind} are not a map")
        return found

    def _builtin(self, operator: Any) -> Mapping[str, Any]:
        """Give the numbers of an options table by their names."""
        names = {v: k for k, v in vars(self._schema.BuiltinOptions).items() if isinstance(v, int)}
        table, name = operator.BuiltinOptions(), names.get(operator.BuiltinOptionsType())
        if table is None or name in (None, "NONE"):
            return {}
        options = getattr(self._schema, name)()
        options.Init(table.Bytes, table.Pos)
        plain = ("Init", "GetRootAs", f"GetRootAs{name}", f"{name}BufferHasIdentifier")
        found = {}
        for key in dir(options):
            if key[0] != "_" and key not in plain and not key.endswith(("AsNumpy", "Length", "IsNone")):
                reader = getattr(options, key)
                if f"{key}Length" not in dir(options) and callable(reader):
                    found[key] = reader()
        return found
