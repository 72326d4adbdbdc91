"""What every operator means, in numpy, straight from docs/format.md: the judge of the C++ core in these tests."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tests.runtime.packed_file import Array, PackedFile


def unpack(words: Array, channels: int) -> Array:
    """Packed words to ±1."""
    bits = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=-1, bitorder="little")[..., :channels]
    return 1 - 2 * bits.astype(np.int64)


class Node:
    """The attributes and tensors of one node of a file."""

    def __init__(self, file: PackedFile, index: int) -> None:
        self.file = file
        self.index = index

    def __getitem__(self, key: str) -> Any:
        return self.file.keys[f"bitedge.node.{self.index}.{key}"][1]

    def has_key(self, key: str) -> bool:
        return f"bitedge.node.{self.index}.{key}" in self.file.keys

    def has(self, tensor: str) -> bool:
        return f"node.{self.index}.{tensor}" in self.file.tensors

    def tensor(self, name: str) -> Array:
        return self.file.tensors[f"node.{self.index}.{name}"]


def windows(x: Array, node: Node, fill: float, dilation: tuple[int, int]) -> Array:
    """Every window of a padded NHWC array: [N, out height, out width, kernel height, kernel width, C]."""
    top, left, bottom, right = node["pads"]
    return slide(np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=fill), node, dilation)


def slide(padded: Array, node: Node, dilation: tuple[int, int]) -> Array:
    """The windows of an array that is padded already."""
    spans = tuple(d * (k - 1) + 1 for d, k in zip(dilation, node["kernel"], strict=True))
    views = np.lib.stride_tricks.sliding_window_view(padded, spans, axis=(1, 2))  # type: ignore[call-overload]
    views = views[:, :: node["stride"][0], :: node["stride"][1], :, :: dilation[0], :: dilation[1]]
    return np.moveaxis(views, 3, -1)


def convolve(x: Array, node: Node, weight: Array, fill: float) -> Array:
    """A grouped convolution by windows, in the precision of its operands."""
    views = windows(x, node, fill, tuple(node["dilation"]))
    groups = node["groups"]
    parts = [
        np.einsum("nhwklc,oklc->nhwo", v, w)
        for v, w in zip(np.split(views, groups, axis=-1), np.split(weight, groups), strict=True)
    ]
    return np.concatenate(parts, axis=-1)


def epilogue(acc: Array, node: Node, operands: list[Array]) -> list[Array]:
    """Threshold, or steps, or scale, residual, activation; then emit. In float64, rounded where the format rounds."""
    if node["epilogue"] == "threshold":
        return [np.where(acc >= node.tensor("threshold"), 1, -1).astype(np.int8)]
    y: Array = acc.astype(np.float32)
    if node["epilogue"] == "steps":
        return emit(steps(y, node, operands), node)
    if node.has("scale"):
        y = (y.astype(np.float64) * node.tensor("scale") + node.tensor("bias")).astype(np.float32)
    for residual in operands:
        y = y + residual.astype(np.float32)
    if node["activation"] == "relu":
        y = np.maximum(y, np.float32(0))
    elif node["activation"] == "prelu":
        y = np.where(y < 0, y * node.tensor("slope"), y)
    return emit(y, node)


def emit(y: Array, node: Node) -> list[Array]:
    """Floats, bits, or both."""
    bits = np.where(y < 0, -1, 1).astype(np.int8)
    made: dict[str, list[Array]] = {"float": [y], "bits": [bits], "float+bits": [y, bits]}
    return made[node["emit"]]


def step(y: Array, name: str, parameter: Callable[[str], Any], operand: Array | None, *, rounded: bool = True) -> Array:
    """One step of an epilogue, rounded to float32 or not."""
    wide = y.astype(np.float64)
    shifted = np.clip(y + np.float32(3), np.float32(0), np.float32(6))
    if name == "fma":
        return np.asarray(wide * parameter("scale") + parameter("bias")).astype(np.float32)
    if name in ("add", "multiply"):
        assert operand is not None
        return y + operand.astype(np.float32) if name == "add" else y * operand
    if name == "prelu":
        return np.where(y < 0, y * parameter("slope"), y)
    if name == "clamp":
        return np.clip(y, np.float32(parameter("min")), np.float32(parameter("max")))
    functions: dict[str, Callable[[], Array]] = {
        "relu": lambda: np.maximum(y, np.float32(0)),
        "hardsigmoid": lambda: shifted / np.float32(6),
        "hardswish": lambda: (y * shifted) / np.float32(6),
        "sigmoid": lambda: 1 / (1 + np.exp(-wide)),
        "tanh": lambda: np.tanh(wide),
        "silu": lambda: wide / (1 + np.exp(-wide)),
        # Not 1 + erf, which cancels for negative numbers.
        "gelu": lambda: wide / 2 * np.vectorize(math.erfc)(-wide / math.sqrt(2)),
        "gelu_tanh": lambda: wide / (1 + np.exp(-math.sqrt(8 / math.pi) * (wide + 0.044715 * wide**3))),
    }
    with np.errstate(over="ignore"):
        exact = np.asarray(functions[name]())
    return exact.astype(np.float32) if rounded else exact


def steps(y: Array, node: Node, operands: list[Array]) -> Array:
    """The steps in order; every further input is read by one `add` or `multiply`."""
    rest = iter(operands)
    for k, name in enumerate(node["steps"]):

        def parameter(key: str, k: int = k) -> Any:
            tensor = f"step.{k}.{key}"
            return node.tensor(tensor) if node.has(tensor) else node[tensor]

        y = step(y, name, parameter, next(rest) if name in ("add", "multiply") else None)
    return y


def max_pool(x: Array, node: Node) -> Array:
    """The maximum of each window; of bits the minimum where `min_channels` says so."""
    maximum = windows(x.astype(np.float32), node, -np.inf, tuple(node["dilation"])).max(axis=(3, 4))
    minimum = windows(x.astype(np.float32), node, np.inf, tuple(node["dilation"])).min(axis=(3, 4))
    least = node.has("min_channels")
    chosen = unpack(node.tensor("min_channels"), x.shape[-1]) < 0 if least else np.zeros(x.shape[-1], bool)
    return np.where(chosen, minimum, maximum).astype(x.dtype)


def avg_pool(x: Array, node: Node) -> Array:
    """The mean of each window, padding counted or not."""
    sums = windows(x.astype(np.float64), node, 0, (1, 1)).sum(axis=(3, 4))
    ones = np.ones((1, *x.shape[1:3], 1))
    top, left, bottom, right = node["pads"]
    padded = np.pad(ones, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=node["count_include_pad"])
    below, beside = node["overhang"] if node.has_key("overhang") else (0, 0)
    padded[:, padded.shape[1] - below :] = 0
    padded[:, :, padded.shape[2] - beside :] = 0
    counts = slide(padded, node, (1, 1)).sum(axis=(3, 4))
    return np.asarray(sums / counts).astype(np.float32)


def layer_norm(x: Array, node: Node) -> Array:
    """Normalization over channels at each pixel."""
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + np.float32(node["eps"]))
    return np.asarray(scaled * node.tensor("weight") + node.tensor("bias")).astype(np.float32)


def group_norm(x: Array, node: Node) -> Array:
    """Normalization over the map and the channels of a group."""
    wide = x.astype(np.float64).reshape(*x.shape[:3], node["groups"], -1)
    centred = wide - wide.mean(axis=(1, 2, 4), keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(axis=(1, 2, 4), keepdims=True) + np.float32(node["eps"]))
    return np.asarray(scaled.reshape(x.shape) * node.tensor("weight") + node.tensor("bias")).astype(np.float32)


def adaptive_avg_pool(x: Array, node: Node) -> Array:
    """Means of nearly equal parts, which overlap where they are not equal."""
    height, width = node["size"]
    made = np.empty((len(x), height, width, x.shape[3]), np.float32)
    for i in range(height):
        for j in range(width):
            rows = slice(i * x.shape[1] // height, -(-(i + 1) * x.shape[1] // height))
            columns = slice(j * x.shape[2] // width, -(-(j + 1) * x.shape[2] // width))
            made[:, i, j] = x[:, rows, columns].astype(np.float64).mean(axis=(1, 2))
    return made


def gather(x: Array, node: Node) -> Array:
    """Channels by index; -1 is the constant 0."""
    index = node.tensor("index")
    return np.where(index < 0, x.dtype.type(0), x[..., index])


def softmax(x: Array) -> Array:
    """Softmax over channels."""
    raised = np.exp(x.astype(np.float64) - x.max(axis=-1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True)).astype(np.float32)


def outputs(node: Node, inputs: list[Array]) -> list[Array]:
    """The values that a node makes."""
    op, x, operands = node["op"], inputs[0], inputs[1:]
    maps = {"gather_channels": gather, "group_norm": group_norm, "adaptive_avg_pool2d": adaptive_avg_pool}
    if op in maps:
        return [maps[op](x, node)]
    if op == "concat":
        return [np.concatenate(inputs, axis=-1)]
    if op == "normalize":
        wide = x.astype(np.float64) * node.tensor("scale") + node.tensor("offset")
        return [wide.astype(np.float32)]
    if op == "elementwise":
        return epilogue(x, node, operands)
    if op == "max_pool2d":
        return [max_pool(x, node)]
    if op == "avg_pool2d":
        return [avg_pool(x, node)]
    if op == "layer_norm":
        return [layer_norm(x, node)]
    if op == "softmax":
        return [softmax(x)]
    if op == "conv2d":
        weight = node.tensor("weight").astype(np.float64)
        return epilogue(convolve(x.astype(np.float64), node, weight, 0), node, operands)
    signs = unpack(node.tensor("weight"), x.shape[-1] // node["groups"])
    if op == "binary_conv2d":
        return epilogue(convolve(x.astype(np.int64), node, signs, node["pad_value"]), node, operands)
    assert op == "image_conv2d"
    return epilogue(convolve(2 * x.astype(np.int64) - 255, node, signs, 0), node, operands)


def run(file: PackedFile, images: Array) -> dict[str, Array]:
    """Every value of the graph by name, as `Model.activations` returns them."""
    names = [str(file.keys["bitedge.input.name"][1])]
    values = {names[0]: images}
    for index in range(file.nodes):
        node = Node(file, index)
        inputs = [values[names[i]] for i in node["inputs"]]
        made = outputs(node, inputs)
        for name, value in zip(node["outputs"], made, strict=True):
            names.append(name)
            values[name] = value
    return values
