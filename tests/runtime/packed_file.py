"""Packed models written by hand, byte by byte, from docs/format.md alone: nothing here is shared with the exporter."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

TYPES = {
    "u8": (0, "B"),
    "i8": (1, "b"),
    "u16": (2, "H"),
    "i16": (3, "h"),
    "u32": (4, "I"),
    "i32": (5, "i"),
    "f32": (6, "f"),
    "bool": (7, "B"),
    "string": (8, ""),
    "u64": (10, "Q"),
    "i64": (11, "q"),
    "f64": (12, "d"),
}
TENSOR_TYPES = {"float32": 0, "float16": 1, "int32": 26, "int64": 27}
ATTRIBUTE_TYPES = {
    "op": "string",
    "inputs": "u32[]",
    "outputs": "string[]",
    "kernel": "u32[]",
    "stride": "u32[]",
    "pads": "u32[]",
    "dilation": "u32[]",
    "groups": "u32",
    "pad_value": "i32",
    "count_include_pad": "bool",
    "eps": "f32",
    "epilogue": "string",
    "activation": "string",
    "emit": "string",
    "steps": "string[]",
    "size": "u32[]",
    "overhang": "u32[]",
}
STEP_TYPES = {"min": "f32", "max": "f32"}
ALIGNMENT = 32
UNSIGNED = b"0" * 64


def string(text: str | bytes) -> bytes:
    """A GGUF string: its length, then its bytes."""
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def value_bytes(kind: str, value: Any) -> bytes:
    """A typed value as a key-value holds it."""
    if kind.endswith("[]"):
        number, code = TYPES[kind[:-2]]
        items = (string(item) if kind == "string[]" else struct.pack(f"<{code}", item) for item in value)
        return struct.pack("<IIQ", 9, number, len(value)) + b"".join(items)
    number, code = TYPES[kind]
    return struct.pack("<I", number) + (string(value) if kind == "string" else struct.pack(f"<{code}", value))


def pack_bits(signs: Array) -> Array:
    """±1 along the last axis to 64-bit words: bit 1 is -1, least significant first, tail bits 0."""
    channels = signs.shape[-1]
    words = (channels + 63) // 64
    bits = np.zeros((*signs.shape[:-1], words * 64), np.uint8)
    bits[..., :channels] = signs < 0
    return np.packbits(bits, axis=-1, bitorder="little").view("<i8")


def padding(size: int) -> bytes:
    """The zeros that bring a size to the next multiple of 32."""
    return bytes(-size % ALIGNMENT)


def sign(data: bytes) -> bytes:
    """The file with its SHA-256 put right."""
    at = data.index(string("bitedge.sha256")) + len(string("bitedge.sha256")) + 4 + 8
    blank = data[:at] + UNSIGNED + data[at + 64 :]
    return data[:at] + hashlib.sha256(blank).hexdigest().encode() + data[at + 64 :]


@dataclass
class PackedFile:
    """A model file in parts that a test may change before it is written."""

    keys: dict[str, tuple[str, Any]] = field(default_factory=dict)
    tensors: dict[str, Array] = field(default_factory=dict)
    nodes: int = 0

    @classmethod
    def start(cls, shape: Sequence[int], *, kind: str = "uint8", name: str = "by hand", version: int = 1) -> PackedFile:
        """A file with everything but nodes."""
        keys = {
            "general.architecture": ("string", "bitedge"),
            "general.name": ("string", name),
            "bitedge.format_version": ("u32", version),
            "bitedge.sha256": ("string", UNSIGNED),
            "bitedge.input.kind": ("string", kind),
            "bitedge.input.name": ("string", "image"),
            "bitedge.input.shape": ("u32[]", list(shape)),
        }
        return cls(dict(keys))

    def node(
        self, op: str, inputs: Sequence[int], outputs: Sequence[str], tensors: Mapping[str, Array], **attributes: Any
    ) -> None:
        """Append a node; the types of its attributes are those of the format."""
        prefix = f"bitedge.node.{self.nodes}."
        for key, value in {"op": op, "inputs": inputs, "outputs": outputs, **attributes}.items():
            types = STEP_TYPES if key.startswith("step.") else ATTRIBUTE_TYPES
            self.keys[prefix + key] = (types[key.rpartition(".")[2]], value)
        for name, tensor in tensors.items():
            self.tensors[f"node.{self.nodes}.{name}"] = tensor
        self.nodes += 1

    def finish(self, output: int) -> PackedFile:
        """Name the answer."""
        self.keys["bitedge.graph.nodes"] = ("u32", self.nodes)
        self.keys["bitedge.graph.output"] = ("u32", output)
        return self

    def build(self, *, signed: bool = True) -> bytes:
        """The bytes of the file."""
        head = b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.keys))
        for key, (kind, value) in self.keys.items():
            head += string(key) + value_bytes(kind, value)
        data = b""
        for name, tensor in self.tensors.items():
            head += string(name) + struct.pack("<I", tensor.ndim)
            head += struct.pack(f"<{tensor.ndim}Q", *reversed(tensor.shape))
            head += struct.pack("<IQ", TENSOR_TYPES[str(tensor.dtype)], len(data))
            data += tensor.tobytes() + padding(tensor.nbytes)
        file = head + padding(len(head)) + data
        return sign(file) if signed else file


def window(
    kernel: Sequence[int] = (1, 1),
    *,
    stride: Sequence[int] = (1, 1),
    pads: Sequence[int] = (0, 0, 0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
) -> dict[str, Any]:
    """The attributes of a convolution's window."""
    return {"kernel": kernel, "stride": stride, "pads": pads, "dilation": dilation, "groups": groups}


def steps(*names: str, emit: str = "float", parameters: Mapping[str, float] | None = None) -> dict[str, Any]:
    """The attributes of an epilogue of steps; a parameter is named `2.min` for `step.2.min`."""
    attributes = {f"step.{key}": value for key, value in (parameters or {}).items()}
    return {"epilogue": "steps", "steps": names, "emit": emit, **attributes}


AFFINE: dict[str, Any] = {"epilogue": "affine", "activation": "none", "emit": "float"}


def small_model(*, golden: Array | None = None) -> PackedFile:
    """Image convolution to bits, binary convolution to floats, mean, dense: 6x6x3 to 5 labelled outputs."""
    rng = np.random.default_rng(7)
    signs = rng.choice([-1, 1], (4, 3, 3, 3)), rng.choice([-1, 1], (8, 3, 3, 4))
    file = PackedFile.start((6, 6, 3))
    file.node(
        "image_conv2d",
        [0],
        ["stem"],
        {"weight": pack_bits(signs[0]), "threshold": np.array([-300, 0, 5, 900], np.int32)},
        **window((3, 3), pads=(1, 1, 1, 1)),
        epilogue="threshold",
    )
    file.node(
        "binary_conv2d",
        [1],
        ["conv"],
        {
            "weight": pack_bits(signs[1]),
            "scale": rng.normal(size=8).astype(np.float32),
            "bias": rng.normal(size=8).astype(np.float32),
        },
        **window((3, 3), stride=(2, 2), pads=(0, 0, 1, 1)),
        pad_value=0,
        **AFFINE,
    )
    file.node("avg_pool2d", [2], ["mean"], {}, kernel=(3, 3), stride=(1, 1), pads=(0,) * 4, count_include_pad=False)
    dense = rng.normal(size=(5, 1, 1, 8)).astype(np.float32)
    file.node("conv2d", [3], ["logits"], {"weight": dense}, **window(), **AFFINE)
    file.keys["bitedge.labels"] = ("string[]", ["cat", "dog", "Zürich", "a\nb", ""])
    preprocessing = (
        '{"size": [6, 6], "resize": null, "interpolation": "bilinear", "scale": [1, 1, 1], "offset": [0, 0, 0]}'
    )
    file.keys["bitedge.preprocessing"] = ("string", preprocessing)
    if golden is not None:
        file.keys["bitedge.golden.count"] = ("u32", len(golden))
        file.keys["bitedge.golden.seed"] = ("u64", 41)
        file.tensors["golden.output"] = golden.astype(np.float32)
    return file.finish(4)
