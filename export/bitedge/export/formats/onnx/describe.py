"""What an ONNX file holds, as plain data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import ModelProto, ValueInfoProto

from bitedge.export.errors import ExportError


def describe(path: Path) -> dict[str, Any]:
    """Read format, size, metadata and layers."""
    try:
        model = onnx.load(str(path))
        onnx.checker.check_model(model)
        shapes = _shapes(onnx.shape_inference.infer_shapes(model))
    except (DecodeError, onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ExportError(f"{path} is not a valid ONNX file: {str(error).splitlines()[0]}") from error
    graph = model.graph
    sizes = {tensor.name: onnx.numpy_helper.to_array(tensor).nbytes for tensor in graph.initializer}
    opsets = ", ".join(f"{row.domain or 'ai.onnx'} {row.version}" for row in model.opset_import)
    return {
        "format": f"onnx, operators {opsets}",
        "name": graph.name,
        "bytes": path.stat().st_size,
        "inputs": [_value(value) for value in graph.input],
        "outputs": [_value(value) for value in graph.output],
        "metadata": {row.key: row.value for row in model.metadata_props},
        "layers": [
            {
                "name": node.output[0],
                "op": node.op_type,
                "shape": shapes.get(node.output[0], "?"),
                "bytes": sum(sizes.get(name, 0) for name in node.input),
            }
            for node in graph.node
        ],
    }


def _shapes(model: ModelProto) -> dict[str, str]:
    graph = model.graph
    return {value.name: _value(value)["shape"] for value in (*graph.value_info, *graph.output)}


def _value(value: ValueInfoProto) -> dict[str, str]:
    tensor = value.type.tensor_type
    sizes = [str(d.dim_value) if d.HasField("dim_value") else (d.dim_param or "?") for d in tensor.shape.dim]
    return {
        "name": value.name,
        "type": str(onnx.TensorProto.DataType.Name(tensor.elem_type)).lower(),
        "shape": "x".join(sizes),
    }
