"""Read an ONNX file as a torch module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from numpy.typing import NDArray
from onnx import NodeProto, numpy_helper
from onnx.inliner import inline_local_functions

from bitedge.export.errors import ExportError
from bitedge.export.importers.module import ImportedModule, Wire, constant
from bitedge.export.importers.onnx.entry import Entry, find_entry
from bitedge.export.importers.onnx.folding import fold
from bitedge.export.importers.onnx.operators import OPERATORS, REFUSALS
from bitedge.export.importers.onnx.qonnx import write_out

_DOMAINS = ("", "ai.onnx")


@dataclass(frozen=True, eq=False)
class OnnxModel:
    """An ONNX file: the model as onnxruntime runs it, and the module that computes the same."""

    model: onnx.ModelProto
    module: ImportedModule
    entry: Entry


def read(path: Path) -> OnnxModel:
    """Read a file; whatever is wrong with it, or not supported, is an `ExportError`."""
    model = write_out(_load(path))
    if len(model.graph.output) != 1:
        raise ExportError(f"{path}: the network must give one tensor, it gives {len(model.graph.output)}")
    entry = find_entry(path, model)
    return OnnxModel(model, _Reader(model, entry).module, entry)


def _load(path: Path) -> onnx.ModelProto:
    try:
        model = onnx.load(str(path))
        onnx.checker.check_model(model)
        return inline_local_functions(model) if model.functions else model
    except OSError as error:
        raise ExportError(f"cannot read {path}: {error.strerror or error}") from error
    except (DecodeError, onnx.checker.ValidationError, ValueError, RuntimeError, TypeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ExportError(f"{path} is not a valid ONNX file: {reason[:200]}") from error


class _Reader:
    """Walks over the nodes: constants are folded, the others become layers."""

    def __init__(self, model: onnx.ModelProto, entry: Entry) -> None:
        graph = model.graph
        self._opset = next((row.version for row in model.opset_import if row.domain in _DOMAINS), 1)
        self._constants: dict[str, NDArray[Any]] = {}
        for tensor in graph.initializer:
            self._constants[tensor.name] = _array(tensor)
        self.module = ImportedModule(IMAGE, entry.shape)
        self.module.add("image", "input", entry.arrange, [Wire(IMAGE)], [entry.name])
        needed = _needed(graph)
        for node in graph.node:
            if needed.intersection(node.output):
                self._read(node)
        answer = graph.output[0].name
        if not self.module.made(answer):
            raise ExportError("the answer of the network does not depend on its image")
        self.module.answer = answer

    def _read(self, node: NodeProto) -> None:
        name = node.name or (node.output[0] if node.output else node.op_type)
        if node.op_type == "Shape" and self.module.made(node.input[0]):
            sizes = np.array(self.module.shape(node.input[0]), np.int64)
            options = _attributes(node)
            self._constants[node.output[0]] = sizes[options.get("start", 0) : options.get("end")]
            return
        inputs = [self._constants.get(each) for each in node.input]
        unknown = [n for n, c in zip(node.input, inputs, strict=True) if n and c is None and not self.module.made(n)]
        if unknown:
            raise ExportError(f"layer {name!r} ({node.op_type}) reads {unknown[0]!r}, which nothing makes")
        if not any(self.module.made(each) for each in node.input if each):
            self._constants.update(fold(node, inputs, self._opset))
            return
        self._layer(name, node)

    def _layer(self, name: str, node: NodeProto) -> None:
        operator = OPERATORS.get(node.op_type) if node.domain in _DOMAINS else None
        if operator is None:
            why = REFUSALS.get(node.op_type, f"is not supported. Supported: {', '.join(sorted(OPERATORS))}")
            raise ExportError(f"layer {name!r}: the operator {node.op_type} {why}")
        options = {**_attributes(node), "_outputs": len(node.output)}
        if node.op_type == "Softmax" and self._opset < 13:
            options.setdefault("axis", 1)
        arguments: list[Any] = [options]
        for each in node.input:
            if not each:
                arguments.append(None)
            elif each in self._constants:
                known = self._constants[each]
                arguments.append(known if operator.static else constant(known))
            else:
                arguments.append(Wire(each))
        while arguments[-1] is None:
            arguments.pop()
        outputs = list(node.output) if node.op_type == "Split" else list(node.output)[:1]
        self.module.add(name, node.op_type, operator.function, arguments, outputs)


IMAGE = "bitedge.image"
"""The name of the module's own input; the file's input is made of it by arranging its dimensions."""


def _attributes(node: NodeProto) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for attribute in node.attribute:
        value = onnx.helper.get_attribute_value(attribute)
        found[attribute.name] = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return found


def _array(tensor: onnx.TensorProto) -> NDArray[Any]:
    try:
        found: NDArray[Any] = numpy_helper.to_array(tensor)
        return found
    except (ValueError, TypeError, KeyError, OverflowError, MemoryError, OSError) as error:
        raise ExportError(f"the constant {tensor.name!r} is damaged: {error}") from error


def _needed(graph: onnx.GraphProto) -> set[str]:
    """Give the tensors that the answer depends on."""
    needed = {graph.output[0].name}
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            needed.update(node.input)
    return needed
