"""The input of an ONNX graph: what shape and type it has, and where its channels are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto
from torch import Tensor

from bitedge.export.errors import ExportError

_LARGEST = 2**26
_POINTWISE = ("Add", "Sub", "Mul", "Div", "Cast", "Identity")


@dataclass(frozen=True)
class Entry:
    """The input: its name, how its dimensions stand, and the shape (channels, height, width) of an image."""

    name: str
    layout: str
    shape: tuple[int, int, int]
    batch: int | None
    kind: type[np.generic]

    def arrange(self, image: Tensor) -> Tensor:
        """Give images `[N, C, H, W]` as the file takes them."""
        if self.layout == "NHWC":
            return image.permute(0, 2, 3, 1)
        return image.flatten(1) if self.layout == "NF" else image

    def feed(self, images: NDArray[np.float32]) -> NDArray[Any]:
        """The same for an array, in the type that the file takes."""
        if self.layout == "NHWC":
            images = images.transpose(0, 2, 3, 1)
        elif self.layout == "NF":
            images = images.reshape(len(images), -1)
        return np.ascontiguousarray(images, dtype=self.kind)


def find_entry(path: Path, model: onnx.ModelProto) -> Entry:
    """Find the one input of a graph, or refuse."""
    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer}
    entries = [value for value in graph.input if value.name not in constants]
    if len(entries) != 1:
        raise ExportError(f"{path}: the network must take one image, it has {len(entries)} inputs")
    tensor = entries[0].type.tensor_type
    sizes = [d.dim_value if d.HasField("dim_value") and d.dim_value > 0 else None for d in tensor.shape.dim]
    inner = [size for size in sizes[1:] if size is not None]
    if len(sizes) not in (2, 4) or len(inner) != len(sizes) - 1:
        raise ExportError(
            f"{path}: expected an input [N, C, H, W], [N, H, W, C] or [N, F] whose sizes but N are fixed, got "
            f"{['?' if size is None else size for size in sizes]}"
        )
    if int(np.prod(np.array(inner, object))) > _LARGEST:
        raise ExportError(f"{path}: an image of {inner} is too large to be real; the limit is {_LARGEST} numbers")
    kinds: dict[int, type[np.generic]] = {TensorProto.FLOAT: np.float32, TensorProto.UINT8: np.uint8}
    if tensor.elem_type not in kinds:
        raise ExportError(f"{path}: expected an input of float32 or uint8, got type {tensor.elem_type}")
    layout = "NF" if len(sizes) == 2 else _layout(graph, entries[0].name, inner)
    if layout == "NF":
        shape = (inner[0], 1, 1)
    else:
        shape = (inner[2], inner[0], inner[1]) if layout == "NHWC" else (inner[0], inner[1], inner[2])
    return Entry(entries[0].name, layout, shape, sizes[0], kinds[tensor.elem_type])


def _layout(graph: onnx.GraphProto, name: str, sizes: list[int]) -> str:
    """Follow the image to the layer that shows where its channels are."""
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for each in node.input:
            readers.setdefault(each, []).append(node)
    for _ in range(len(graph.node)):
        if len(readers.get(name, ())) != 1:
            break
        node = readers[name][0]
        if node.op_type == "Transpose":
            order = [list(row.ints) for row in node.attribute if row.name == "perm"]
            return "NHWC" if order == [[0, 3, 1, 2]] else "NCHW"
        if node.op_type == "Conv":
            return "NCHW"
        if node.op_type not in _POINTWISE or not node.output:
            break
        name = node.output[0]
    return "NHWC" if sizes[2] <= 4 < sizes[0] else "NCHW"
