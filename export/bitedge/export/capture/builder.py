"""What capture knows while it walks a program: symbols that stand for tensors, and the nodes made so far."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, fx

from bitedge.export.capture.fold import FloatArray, numbers
from bitedge.export.errors import ExportError
from bitedge.export.ir import ops
from bitedge.export.ir.graph import Kind, Node, Shape, Value
from bitedge.export.ir.shapes import infer_node

Index = NDArray[np.intp]
_OWN_LAYERS = ("torch.nn.modules.", "bitedge.train.nn.", "bitedge.export.importers.")
_CONTAINERS = "torch.nn.modules.container."


class UnsupportedError(ExportError):
    """A layer, or an option of it, that the graph has no operator for."""


@dataclass(frozen=True, eq=False)
class Symbol:
    """A torch tensor `[N, C, H, W]` (rank 4) or `[N, F]` (rank 2): the graph value that holds it, and how.

    The graph is NHWC, torch is NCHW, so the features of a flattened map stand in another order: `order[j]` is torch's
    index of the graph's channel j (None: the same). Whoever reads such a value permutes its own parameters.
    Where the value is bits, the tensor is `factor` times ±1.
    """

    value: str
    kind: Kind
    shape: Shape
    rank: int
    order: Index | None = None
    factor: float = 1.0

    def torch_shape(self) -> tuple[int, ...]:
        """Give the shape that torch sees, without the batch."""
        height, width, channels = self.shape
        return (channels, height, width) if self.rank == 4 else (channels,)

    def scaled(self, factor: float) -> Symbol:
        """Give the same bits with another factor."""
        return replace(self, factor=factor)

    def index(self) -> Index:
        """Give for each element, in torch's shape, its place in the value's own order (height, width, channel)."""
        count = int(np.prod(self.shape))
        if self.rank == 4:
            return np.arange(count).reshape(self.shape).transpose(2, 0, 1)
        return np.arange(count) if self.order is None else np.argsort(self.order)


@dataclass(frozen=True, eq=False)
class View:
    """Elements of a value in any arrangement, not yet made: `places` holds, in torch's shape, where each one stands."""

    base: Symbol
    places: Index

    def torch_shape(self) -> tuple[int, ...]:
        """Give the shape that torch sees, without the batch."""
        return tuple(self.places.shape)

    def index(self) -> Index:
        """Give the places."""
        return self.places


class Builder:
    """Collects the nodes of a graph; `layer` is the torch layer that is being translated."""

    def __init__(self, value: Value) -> None:
        self.values = {value.name: value}
        self.nodes: list[Node] = []
        self.layer = ""
        self.name = ""
        self.where = ""
        self.kind = ""

    def start(self, node: fx.Node) -> None:
        """Begin the next operator: a layer of its own is called by its path, anything else by the operator."""
        path, kind = place(node)
        own = kind.startswith(_OWN_LAYERS) and not kind.startswith(_CONTAINERS) and bool(path)
        name = node.name.replace("_native_batch_norm_legit_no_training", "batch_norm")
        self.call(path if own else name)
        self.kind = kind if own else ""
        self.where = path if own else f"{path}.{name}" if path else name

    def call(self, layer: str) -> None:
        """Begin a layer of this name."""
        self.layer = self.where = layer
        self.name = self.unique(layer)

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
        inner: str | None = None,
        rank: int | None = None,
        order: Index | None = None,
        factor: float = 1.0,
    ) -> Symbol:
        """Add a node and give the symbol of its result, of the first input's rank and in the order that is given.

        The result is the layer's; with `inner` it is a value inside of it, of that name.
        """
        name = self.unique(self.name if inner is None else f"{self.name}.{inner}")
        return self._add(
            Node(op, tuple(x.value for x in inputs), (name,), self.layer), rank or inputs[0].rank, order, factor
        )

    def _add(self, node: Node, rank: int, order: Index | None, factor: float) -> Symbol:
        (value,) = infer_node(node, [self.values[name] for name in node.inputs])
        self.values[value.name] = value
        self.nodes.append(node)
        return Symbol(value.name, value.kind, value.shape, rank, order, factor)

    def chain(self, x: Symbol, *steps: tuple[ops.Op, str]) -> Symbol:
        """Add several nodes in a row; the last one is the layer's result, the others carry the name beside them."""
        for op, name in steps[:-1]:
            x = self.emit(op, x, inner=name, order=x.order)
        return self.emit(steps[-1][0], x, order=x.order)

    def sign(self, x: Symbol, at_zero: int = 1) -> Symbol:
        """Binarize a symbol; two layers that binarize the same value share one node."""
        for node in self.nodes:
            if isinstance(node.op, ops.Sign) and node.inputs == (x.value,) and node.op.at_zero == at_zero:
                return Symbol(node.outputs[0], Kind.BITS, x.shape, x.rank, x.order)
        name = self.unique(f"{x.value}.sign")  # it belongs to whoever made the value as much as to whoever reads it
        return self._add(Node(ops.Sign(at_zero), (x.value,), (name,), name), x.rank, x.order, 1.0)

    def padded_with_zero(self, x: Symbol) -> bool:
        """Tell whether bits hold zeros of a padding, so that they are not their own sign."""
        names = {x.value}
        for node in reversed(self.nodes):
            if node.outputs[0] in names and not isinstance(node.op, ops.Sign):
                if isinstance(node.op, ops.Pad) and node.op.value == 0:
                    return True
                names.update(node.inputs)
        return False

    def plain(self, x: Symbol) -> Symbol:
        """Give bits with a factor as numbers."""
        if x.factor == 1.0:
            return x
        name = self.unique(f"{x.value}.scaled")
        return self._add(Node(ops.Scale(self.one(x.factor)), (x.value,), (name,), self.layer), x.rank, x.order, 1.0)

    def as_float(self, x: Symbol) -> Symbol:
        """Give bits as numbers."""
        return (
            x if x.kind is not Kind.BITS else self.emit(ops.Scale(self.one(x.factor)), x, inner="floats", order=x.order)
        )

    def pointwise_source(self, x: Symbol | View) -> Symbol:
        """Give the value that an elementwise operator may work on in place of its rearrangement."""
        return x.base if isinstance(x, View) else x

    def reviewed(self, x: Symbol | View, result: Symbol) -> Symbol | View:
        """Give the result of an elementwise operator in the arrangement that its input had."""
        return View(result, x.places) if isinstance(x, View) else result

    def one(self, number: float) -> FloatArray:
        """Give one float32 as an array."""
        return np.array([number], np.float32)

    def refuse(self, what: str) -> UnsupportedError:
        """Make the error that names the layer."""
        return UnsupportedError(f"layer {self.where!r}: {what}")

    def per_channel(self, x: Symbol, constant: Tensor) -> FloatArray:
        """Give a constant that broadcasts over x as one number, or as one per channel in the graph's order."""
        if constant.numel() == 1:
            return numbers(constant).reshape(1)
        shape = (2, *x.torch_shape())
        sizes = (1,) * (len(shape) - constant.ndim) + tuple(constant.shape)
        fits = len(sizes) == len(shape) and all(c in (1, s) for c, s in zip(sizes, shape, strict=True))
        array = numbers(constant).reshape(sizes)
        if not fits or (array != array[:1]).any() or (x.rank == 4 and (array != array[:, :, :1, :1]).any()):
            raise self.refuse(
                f"a parameter of shape {list(constant.shape)} on {describe(x)} is not supported; "
                "expected one number, or one per channel"
            )
        flat = array[0].reshape(sizes[1], -1)[:, 0]
        if flat.size == 1:
            return np.ascontiguousarray(flat)
        return np.ascontiguousarray(flat if x.order is None else flat[x.order])


def describe(x: Any) -> str:
    """Say what shape a tensor has, in torch's order."""
    return str(["N", *x.torch_shape()]).replace("'", "")


def place(node: fx.Node) -> tuple[str, str]:
    """Give the path and the class of the innermost module that a node comes from."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path, kind = stack[-1] if stack else ("", "")
    return str(path), kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
