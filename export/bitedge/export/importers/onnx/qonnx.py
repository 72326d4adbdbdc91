"""QONNX (Brevitas, FINN): its quantizers written out in operators that onnxruntime has.

A sign is `Where(x >= 0, 1, -1) * scale`, which is how QONNX's own executor computes `BipolarQuant` and a signed `Quant`
of one bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from bitedge.export.errors import ExportError

DOMAINS = ("qonnx.custom_op.general", "onnx.brevitas", "finn.custom_op.general")
_ROUNDINGS = {"ROUND": "Round", "HALF_EVEN": "Round", "CEIL": "Ceil", "FLOOR": "Floor"}


def write_out(model: onnx.ModelProto) -> onnx.ModelProto:
    """Give the model with its quantizers as stock operators; a model without them is given back as it is."""
    if not any(node.domain in DOMAINS for node in model.graph.node):
        return model
    written = onnx.ModelProto()
    written.CopyFrom(model)
    constants = {t.name: t for t in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
            constants[node.output[0]] = node.attribute[0].t
    del written.graph.node[:]
    for number, node in enumerate(model.graph.node):
        if node.domain in DOMAINS:
            written.graph.node.extend(_write(node, f"{node.name or node.op_type}_{number}", constants))
        else:
            written.graph.node.append(node)
    kept = [row for row in written.opset_import if row.domain not in DOMAINS]
    del written.opset_import[:]
    written.opset_import.extend(kept)
    return written


def _write(node: NodeProto, name: str, constants: dict[str, Any]) -> list[NodeProto]:
    if node.op_type == "BipolarQuant" and len(node.input) >= 2:
        return _sign(name, node.input[0], node.input[1], node.output[0])
    if node.op_type not in ("Quant", "IntQuant") or len(node.input) != 4:
        raise ExportError(f"layer {name!r}: the operator {node.op_type} of {node.domain} is not supported")
    options = {row.name: helper.get_attribute_value(row) for row in node.attribute}
    zero, bits = (_number(name, constants, each) for each in node.input[2:])
    signed, narrow = bool(options.get("signed", 1)), bool(options.get("narrow", 0))
    if bits == 1 and signed and zero == 0:
        return _sign(name, node.input[0], node.input[1], node.output[0])
    rounding = _ROUNDINGS.get(options.get("rounding_mode", b"ROUND").decode("utf-8", "replace").upper())
    if not 1 <= bits <= 32 or rounding is None:
        raise ExportError(f"layer {name!r}: {node.op_type} of {bits:g} bits with this rounding is not supported")
    return _integers(name, node, _bounds(int(bits), signed, narrow), rounding)


def _bounds(bits: int, signed: bool, narrow: bool) -> tuple[int, int]:
    if signed:
        return -(2 ** (bits - 1)) + int(narrow), 2 ** (bits - 1) - 1
    return 0, 2**bits - 1 - int(narrow)


def _sign(name: str, x: str, scale: str, output: str) -> list[NodeProto]:
    return [
        *(_constant(f"{name}.{key}", number) for key, number in (("zero", 0.0), ("plus", 1.0), ("minus", -1.0))),
        helper.make_node("GreaterOrEqual", [x, f"{name}.zero"], [f"{name}.positive"], f"{name}.positive"),
        helper.make_node(
            "Where", [f"{name}.positive", f"{name}.plus", f"{name}.minus"], [f"{name}.sign"], f"{name}.sign"
        ),
        helper.make_node("Mul", [f"{name}.sign", scale], [output], name),
    ]


def _integers(name: str, node: NodeProto, bounds: tuple[int, int], rounding: str) -> list[NodeProto]:
    x, scale, zero, _ = node.input
    return [
        *(_constant(f"{name}.{key}", float(number)) for key, number in zip(("low", "high"), bounds, strict=True)),
        helper.make_node("Div", [x, scale], [f"{name}.divided"], f"{name}.divided"),
        helper.make_node("Add", [f"{name}.divided", zero], [f"{name}.shifted"], f"{name}.shifted"),
        helper.make_node(
            "Clip", [f"{name}.shifted", f"{name}.low", f"{name}.high"], [f"{name}.clipped"], f"{name}.clipped"
        ),
        helper.make_node(rounding, [f"{name}.clipped"], [f"{name}.rounded"], f"{name}.rounded"),
        helper.make_node("Sub", [f"{name}.rounded", zero], [f"{name}.centred"], f"{name}.centred"),
        helper.make_node("Mul", [f"{name}.centred", scale], list(node.output[:1]), name),
    ]


def _constant(name: str, number: float) -> NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.array(number, np.float32), name))


def _number(name: str, constants: dict[str, Any], each: str) -> float:
    if each not in constants:
        raise ExportError(f"layer {name!r}: its bit width and zero point must be constants")
    array = np.asarray(numpy_helper.to_array(constants[each]), np.float64).reshape(-1)
    if array.size == 0 or (array != array[0]).any():
        raise ExportError(f"layer {name!r}: its bit width and zero point must be one number each")
    return float(array[0])
