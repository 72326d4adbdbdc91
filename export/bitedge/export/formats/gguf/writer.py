"""The writer of `model.gguf`: docs/format.md, line by line. The same bundle gives the same bytes."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGUFValueType as Type
from numpy.typing import NDArray

from bitedge.export.formats.bundle import Bundle
from bitedge.export.formats.gguf.packing import pack
from bitedge.export.ir import ops
from bitedge.export.ir.graph import Graph, Node
from bitedge.export.ir.shapes import infer

FORMAT_VERSION = 2
"""The newest version; a file that needs nothing new says 1."""
_DIGITS = 64
_SHA256 = "bitedge.sha256"

Attributes = dict[str, tuple[Any, Type, Type | None]]
Tensors = dict[str, NDArray[Any]]


def write(bundle: Bundle, path: Path) -> None:
    """Write the packed file: to a temporary name first, then renamed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    writer = gguf.GGUFWriter(temporary, "bitedge")
    try:
        for key, (value, kind, element) in _keys(bundle).items():
            writer.add_key_value(key, value, kind, element)
        for name, tensor in _tensors(bundle).items():
            writer.add_tensor(name, np.ascontiguousarray(tensor))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        _seal(temporary)
        temporary.replace(path)
    finally:
        writer.close()
        temporary.unlink(missing_ok=True)


def _seal(path: Path) -> None:
    """Put in the SHA-256 of the whole file, where its own digits are read as 0."""
    content = path.read_bytes()
    field = _SHA256.encode() + struct.pack("<IQ", Type.STRING, _DIGITS) + b"0" * _DIGITS
    position = content.index(field) + len(field) - _DIGITS
    with path.open("r+b") as file:
        file.seek(position)
        file.write(hashlib.sha256(content).hexdigest().encode())


def _keys(bundle: Bundle) -> Attributes:
    graph = bundle.lowered
    keys: Attributes = {
        "general.name": _string(graph.name),
        "bitedge.format_version": _u32(format_version(graph)),
        _SHA256: _string("0" * _DIGITS),
        "bitedge.input.kind": _string(graph.input.kind),
        "bitedge.input.name": _string(graph.input.name),
        "bitedge.input.shape": _u32s(graph.input.shape),
    }
    if bundle.labels:
        keys["bitedge.labels"] = (list(bundle.labels), Type.ARRAY, Type.STRING)
    for key, document in (("preprocessing", bundle.preprocessing), ("training", bundle.training)):
        if document is not None:
            keys[f"bitedge.{key}"] = _string(_json(document))
    keys["bitedge.golden.count"] = _u32(len(bundle.golden.output))
    keys["bitedge.golden.seed"] = (bundle.golden.seed, Type.UINT64, None)
    index = {name: position for position, name in enumerate(infer(graph))}
    keys["bitedge.graph.nodes"] = _u32(len(graph.nodes))
    keys["bitedge.graph.output"] = _u32(index[graph.output])
    for number, node in enumerate(graph.nodes):
        for key, value in _node_keys(node, index).items():
            keys[f"bitedge.node.{number}.{key}"] = value
    return keys


_NEW_OPERATORS = (ops.Concat, ops.GatherChannels, ops.GroupNorm, ops.AdaptiveAvgPool2d)


def format_version(graph: Graph) -> int:
    """Give the lowest version that can read the graph."""
    for node in graph.nodes:
        overhang = isinstance(node.op, ops.AvgPool2d) and any(node.op.overhang)
        if isinstance(node.op, _NEW_OPERATORS) or isinstance(ops.epilogue_of(node.op), ops.Steps) or overhang:
            return 2
    return 1


def _node_keys(node: Node, index: Mapping[str, int]) -> Attributes:
    op = node.op
    keys: Attributes = {
        "op": _string(op.name),
        "inputs": _u32s([index[name] for name in node.inputs]),
        "outputs": (list(node.outputs), Type.ARRAY, Type.STRING),
    }
    if isinstance(op, ops.Conv2d | ops.BinaryConv2d | ops.ImageConv2d):
        keys |= _window_keys(op.window) | {"groups": _u32(op.window.groups)}
    elif isinstance(op, ops.MaxPool2d):
        keys |= _window_keys(op.window)
    elif isinstance(op, ops.AvgPool2d):
        keys |= _window_keys(op.window) | {"count_include_pad": (op.count_include_pad, Type.BOOL, None)}
        del keys["dilation"]
        if any(op.overhang):
            keys["overhang"] = _u32s(op.overhang)
    elif isinstance(op, ops.LayerNorm):
        keys["eps"] = _f32(op.eps)
    elif isinstance(op, ops.GroupNorm):
        keys |= {"groups": _u32(op.groups), "eps": _f32(op.eps)}
    elif isinstance(op, ops.AdaptiveAvgPool2d):
        keys["size"] = _u32s(op.size)
    if isinstance(op, ops.BinaryConv2d):
        keys["pad_value"] = (op.pad_value, Type.INT32, None)
    return keys | _epilogue_keys(ops.epilogue_of(op))


def _epilogue_keys(epilogue: ops.Epilogue | None) -> Attributes:
    if epilogue is None:
        return {}
    if isinstance(epilogue, ops.Threshold):
        return {"epilogue": _string("threshold")}
    if isinstance(epilogue, ops.Affine):
        activation = _string(epilogue.activation)
        return {"epilogue": _string("affine"), "activation": activation, "emit": _string(epilogue.emit)}
    kinds = [step.kind for step in epilogue.steps]
    keys: Attributes = {"epilogue": _string("steps"), "steps": (kinds, Type.ARRAY, Type.STRING)}
    for number, step in enumerate(epilogue.steps):
        if step.kind == "clamp":
            keys |= {f"step.{number}.min": _f32(step.min), f"step.{number}.max": _f32(step.max)}
    return keys | {"emit": _string(epilogue.emit)}


def _window_keys(window: ops.Window) -> Attributes:
    return {
        "kernel": _u32s(window.kernel),
        "stride": _u32s(window.stride),
        "pads": _u32s(window.pads),
        "dilation": _u32s(window.dilation),
    }


def _tensors(bundle: Bundle) -> Tensors:
    tensors: Tensors = {}
    for number, node in enumerate(bundle.lowered.nodes):
        for name, tensor in node_tensors(node.op).items():
            tensors[f"node.{number}.{name}"] = tensor
    return tensors | {"golden.output": bundle.golden.output}


def node_tensors(op: ops.Op) -> Tensors:
    """Give the tensors of one node as they are stored; bits as words."""
    tensors: Tensors = {}
    if isinstance(op, ops.BinaryConv2d | ops.ImageConv2d):
        tensors["weight"] = _stored(pack(op.weight))
    elif isinstance(op, ops.Conv2d):
        tensors["weight"] = op.weight if op.weight.dtype == np.float16 else op.weight.astype("<f4")
    elif isinstance(op, ops.Normalize):
        tensors |= {"scale": op.scale, "offset": op.offset}
    elif isinstance(op, ops.LayerNorm | ops.GroupNorm):
        tensors |= {"weight": op.weight, "bias": op.bias}
    elif isinstance(op, ops.GatherChannels):
        tensors["index"] = op.index
    elif isinstance(op, ops.MaxPool2d) and op.min_channels is not None:
        tensors["min_channels"] = _stored(pack(np.where(op.min_channels, -1, 1)))
    epilogue = ops.epilogue_of(op)
    if isinstance(epilogue, ops.Threshold):
        tensors["threshold"] = epilogue.threshold
    elif isinstance(epilogue, ops.Affine):
        tensors |= _parameters(epilogue)
    elif epilogue is not None:
        for number, step in enumerate(epilogue.steps):
            tensors |= {f"step.{number}.{name}": tensor for name, tensor in _parameters(step).items()}
    return tensors


def _parameters(part: ops.Affine | ops.Step) -> Tensors:
    named = {"scale": part.scale, "bias": part.bias, "slope": part.slope}
    return {name: tensor for name, tensor in named.items() if tensor is not None}


def _stored(packed: NDArray[np.uint64]) -> NDArray[np.int64]:
    return packed.view("<i8")


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _string(text: str) -> tuple[Any, Type, Type | None]:
    return str(text), Type.STRING, None


def _f32(number: float) -> tuple[Any, Type, Type | None]:
    return float(number), Type.FLOAT32, None


def _u32(number: int) -> tuple[Any, Type, Type | None]:
    return int(number), Type.UINT32, None


def _u32s(numbers: Any) -> tuple[Any, Type, Type | None]:
    return [int(number) for number in numbers], Type.ARRAY, Type.UINT32
