"""What capture knows while it walks a traced module: symbols that stand for tensors, and the nodes made so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bitedge.export.errors import ExportError
from bitedge.export.ir import ops
from bitedge.export.ir.graph import Kind, Node, Shape, Value
from bitedge.export.ir.shapes import infer_node


class UnsupportedError(ExportError):
    """A layer, or an option of it, that the graph has no operator for."""


@dataclass(frozen=True, eq=False)
class Symbol:
    """A torch tensor: the graph value that holds it, and how its axes map.

    The graph is NHWC, torch is NCHW, so the features of a flattened map stand in another order: `order[j]` is torch's
    index of the graph's channel j (None: the same). Whoever reads such a value permutes its own parameters.
    """

    value: str
    kind: Kind
    shape: Shape
    rank: int
    order: NDArray[np.intp] | None = None

    def torch_shape(self) -> tuple[int, ...]:
        """Give the shape that torch sees, with a batch of -1."""
        height, width, channels = self.shape
        return (-1, channels, height, width) if self.rank == 4 else (-1, channels)

    def arrange(self, parameter: Tensor) -> NDArray[np.float32]:
        """Give a parameter that has one number per torch feature in the graph's order, checked to be finite."""
        array = numbers(parameter)
        return array if self.order is None or array.size == 1 else array[self.order]


class Builder:
    """Collects the nodes of a graph; `layer` is the torch layer that is being translated."""

    def __init__(self, value: Value) -> None:
        self.values = {value.name: value}
        self.nodes: list[Node] = []
        self.layer = ""
        self.name = ""

    def start(self, layer: str, name: str) -> None:
        """Begin the next torch layer; its result will carry `name`."""
        self.layer, self.name = layer, self.unique(name)

    def unique(self, name: str) -> str:
        """Give the name, with a number behind it when it is taken."""
        free, number = name, 2
        while free in self.values:
            free, number = f"{name}#{number}", number + 1
        return free

    def emit(
        self,
        op: ops.Op,
        *inputs: Symbol,
        name: str | None = None,
        rank: int | None = None,
        order: NDArray[np.intp] | None = None,
    ) -> Symbol:
        """Add a node and give the symbol of its result, of the first input's rank and in the order that is given."""
        node = Node(op, tuple(x.value for x in inputs), (name or self.name,), self.layer)
        (value,) = infer_node(node, [self.values[x.value] for x in inputs])
        self.values[value.name] = value
        self.nodes.append(node)
        return Symbol(value.name, value.kind, value.shape, rank or inputs[0].rank, order)

    def sign(self, x: Symbol) -> Symbol:
        """Binarize a symbol; two layers that binarize the same value share one node."""
        if x.kind is Kind.BITS:
            return x
        for node in self.nodes:
            if isinstance(node.op, ops.Sign) and node.inputs == (x.value,):
                return Symbol(node.outputs[0], Kind.BITS, x.shape, x.rank, x.order)
        name, layer = self.unique(f"{x.value}.sign"), self.layer
        self.layer = name  # it belongs to whoever made the value as much as to whoever reads it
        bits = self.emit(ops.Sign(), x, name=name, order=x.order)
        self.layer = layer
        return bits

    def refuse(self, what: str) -> UnsupportedError:
        """Make the error that names the layer."""
        return UnsupportedError(f"layer {self.layer!r}: {what}")


def numbers(parameter: Any) -> NDArray[np.float32]:
    """Give a torch tensor as a numpy array of finite float32."""
    tensor: Tensor = parameter.detach().cpu()
    array: NDArray[np.float32] = tensor.float().numpy().copy()
    if not np.isfinite(array).all():
        raise ExportError("a parameter holds NaN or infinity: the network is not usable, train it again")
    return array
