"""What a TFLite file holds, as plain data; custom operators (Larq Compute Engine's) by their own names."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from bitedge.export.errors import ExportError

_IDENTIFIER = b"TFL3"


def describe(path: Path) -> dict[str, Any]:
    """Read format, size, metadata and layers."""
    content = path.read_bytes()
    if content[4:8] != _IDENTIFIER:
        raise ExportError(f"{path} is not a TFLite file: it does not carry the mark {_IDENTIFIER.decode()}")
    from tensorflow.lite.python import schema_py_generated as schema  # seconds, so only for a file that looks right

    try:
        model = schema.ModelT.InitFromPackedBuf(content, 0)
        graph = model.subgraphs[0]
    except (struct.error, IndexError, TypeError, ValueError) as error:
        raise ExportError(f"{path} is a damaged TFLite file: {error}") from error
    types = _names(schema.TensorType)
    operators = _names(schema.BuiltinOperator)

    def value(index: int) -> dict[str, str]:
        tensor = graph.tensors[index]
        sizes = [] if tensor.shape is None else list(tensor.shape)
        return {"name": _text(tensor.name), "type": types[tensor.type].lower(), "shape": "x".join(map(str, sizes))}

    def size(index: int) -> int:
        data = model.buffers[graph.tensors[index].buffer].data if index >= 0 else None
        return 0 if data is None else len(data)

    def kind(operator: Any) -> str:
        code = model.operatorCodes[operator.opcodeIndex]
        name = operators[max(code.builtinCode, code.deprecatedBuiltinCode)]
        return _text(code.customCode) if name == "CUSTOM" else name

    return {
        "format": f"tflite, schema {model.version}",
        "name": _text(graph.name),
        "bytes": len(content),
        "inputs": [value(index) for index in graph.inputs],
        "outputs": [value(index) for index in graph.outputs],
        "metadata": {_text(row.name): f"{_buffer_size(model, row.buffer)} bytes" for row in model.metadata or ()},
        "layers": [
            {
                "name": value(operator.outputs[0])["name"],
                "op": kind(operator),
                "shape": value(operator.outputs[0])["shape"],
                "bytes": sum(size(index) for index in operator.inputs),
            }
            for operator in graph.operators
        ],
    }


def _buffer_size(model: Any, index: int) -> int:
    data = model.buffers[index].data
    return 0 if data is None else len(data)


def _names(enumeration: type) -> dict[int, str]:
    return {number: name for name, number in vars(enumeration).items() if isinstance(number, int)}


def _text(name: bytes | str | None) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else (name or "")
