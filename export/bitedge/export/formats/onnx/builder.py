"""An ONNX graph under construction: named tensors in two layouts, shared constants, weights of ±1 as bits."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from bitedge.export.errors import ExportError
from bitedge.export.formats.bundle import Bundle

OPSET = 17  # the first with LayerNormalization
IR_VERSION = 8
MAX_BYTES = 2**31 - 1  # of one protobuf message

VALUES = "bitedge.values"

Array = NDArray[Any]
Layout = Literal["NCHW", "NHWC"]
_TURN: dict[Layout, list[int]] = {"NCHW": [0, 3, 1, 2], "NHWC": [0, 2, 3, 1]}  # from the other layout


class OnnxBuilder:
    """Nodes and constants in the order in which they are made; every tensor keeps the name of its graph value."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._initializers: dict[str, Array] = {}
        self._names: set[str] = set()
        self._tensors: dict[tuple[str, Layout], str] = {}

    def name(self, wanted: str) -> str:
        """Give this name, or one like it that is still free."""
        name, number = wanted, 2
        while name in self._names:
            name, number = f"{wanted}_{number}", number + 1
        self._names.add(name)
        return name

    def constant(self, value: Any, name: str) -> str:
        """Give the tensor that holds this array; equal arrays are stored once."""
        array = np.ascontiguousarray(value)
        array = array.reshape(np.shape(value))  # ascontiguousarray makes a scalar one-dimensional
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self.name(name)
            self._initializers[self._constants[key]] = array
        return self._constants[key]

    def add(self, operator: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """Append one operator and give the name of its output."""
        output = self.name(output)
        self.nodes.append(helper.make_node(operator, list(inputs), [output], name=output, **attributes))
        return output

    def signs(self, weight: Array, shape: Sequence[int], table: Array, name: str) -> str:
        """Give a tensor of ±1 that is stored as bits: every byte picks eight elements out of a table.

        A runtime that folds constants does that once, when it loads the model.
        """
        flat = weight.reshape(-1)
        octets = np.packbits(flat < 0, bitorder="little")
        entry = (np.arange(256)[:, None] >> np.arange(8)) & 1
        patterns = self.constant(table[entry], f"signs_{table.dtype.name}")
        index = self.add("Cast", [self.constant(octets, f"{name}/bits")], f"{name}/octets", to=TensorProto.INT32)
        out = self.add("Gather", [patterns, index], f"{name}/signs", axis=0)
        if flat.size % 8:
            out = self.reshape(out, [-1], f"{name}/flat")
            ends = [self.constant(np.array([end]), f"to_{end}") for end in (0, flat.size)]
            out = self.add("Slice", [out, *ends], f"{name}/cut")
        return self.reshape(out, shape, name)

    def reshape(self, tensor: str, shape: Sequence[int], output: str) -> str:
        """Reshape; 0 keeps a dimension (the batch), -1 is inferred."""
        target = self.constant(np.array(shape, np.int64), "shape_" + "x".join(map(str, shape)))
        return self.add("Reshape", [tensor, target], output)

    def put(self, value: str, tensor: str, layout: Layout) -> None:
        """Say which tensor holds a value of the graph."""
        self._tensors[value, layout] = tensor

    def get(self, value: str, layout: Layout) -> str:
        """Give the tensor of a value in this layout, turned if it was made in the other."""
        if (value, layout) not in self._tensors:
            (made,) = [tensor for (name, _), tensor in self._tensors.items() if name == value]
            turned = self.add("Transpose", [made], f"{value}/{layout.lower()}", perm=_TURN[layout])
            self._tensors[value, layout] = turned
        return self._tensors[value, layout]

    def layout(self, value: str) -> Layout:
        """Give a layout in which the value is at hand."""
        return "NHWC" if (value, "NHWC") in self._tensors else "NCHW"

    def places(self) -> dict[str, tuple[str, Layout]]:
        """Tell where the graph's values are: the tensor and its layout."""
        return {value: (tensor, layout) for (value, layout), tensor in reversed(self._tensors.items())}

    def model(self, bundle: Bundle, answer: str, outputs: int, values: Mapping[str, Any]) -> onnx.ModelProto:
        """Give the model: input and answer with a free batch, metadata as properties; checked.

        `values` tells whoever wants to look inside where the graph's values are.
        """
        graph = bundle.lowered
        kind = TensorProto.UINT8 if graph.input.kind == "uint8" else TensorProto.FLOAT
        proto = helper.make_graph(
            self.nodes,
            bundle.name,
            [helper.make_tensor_value_info(graph.input.name, kind, ["batch", *graph.input.shape])],
            [helper.make_tensor_value_info(answer, TensorProto.FLOAT, ["batch", outputs])],
            [numpy_helper.from_array(array, name) for name, array in self._initializers.items()],
        )
        model = helper.make_model(
            proto,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="bitedge",
        )
        helper.set_model_props(model, properties(bundle) | {VALUES: json.dumps(values)})
        if model.ByteSize() > MAX_BYTES:
            raise ExportError(f"the ONNX file would have {model.ByteSize()} bytes, one file holds at most {MAX_BYTES}")
        onnx.checker.check_model(model, full_check=True)
        return model


def properties(bundle: Bundle) -> dict[str, str]:
    """Give what a user of the file needs to know besides the graph, as text: lists and tables in JSON."""
    documents: Iterable[tuple[str, Any]] = (
        ("labels", list(bundle.labels) or None),
        ("preprocessing", bundle.preprocessing),
        ("training", bundle.training),
        ("golden", {"seed": bundle.golden.seed, "output": bundle.golden.output.tolist()}),
    )
    text = {f"bitedge.{key}": json.dumps(value, sort_keys=True) for key, value in documents if value is not None}
    return {"bitedge.name": bundle.name} | text


def save(model: onnx.ModelProto, path: Path) -> None:
    """Write the file: to a temporary name first, then renamed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(model.SerializeToString(deterministic=True))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
