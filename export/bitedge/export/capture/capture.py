"""Capture: from any `torch.nn.Module` that `torch.fx` can trace to the graph."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx, nn

from bitedge.export.capture.builder import Builder, Symbol
from bitedge.export.capture.functions import FUNCTIONS, METHODS, SUPPORTED
from bitedge.export.capture.layers import LAYERS
from bitedge.export.errors import ExportError
from bitedge.export.ir import ops
from bitedge.export.ir.graph import Graph, Kind, Shape, Value, prune
from bitedge.export.ir.reference import sign
from bitedge.train.nn.quantize import QUANTIZERS

Example = Tensor | Sequence[int]
IMAGE = "image"
"""The name of a graph's input."""


class _Tracer(fx.Tracer):
    """Keeps supported layers whole and looks into everything else."""

    def __init__(self) -> None:
        super().__init__(autowrap_functions=tuple(QUANTIZERS.values()))

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return type(m) in LAYERS or super().is_leaf_module(m, module_qualified_name)


@dataclass(frozen=True, eq=False)
class Captured:
    """A captured module: its graph, and the traced module itself, the reference for every value of the graph."""

    graph: Graph
    module: fx.GraphModule
    symbols: Mapping[str, Symbol]
    preprocessing: Mapping[str, Any] | None

    def tensors(self, images: NDArray[Any], names: Iterable[str] | None = None) -> dict[str, NDArray[Any]]:
        """Run torch on NHWC images and give its tensors by value name, NHWC; values that are bits as int8 ±1."""
        recorder = _Recorder(self, None if names is None else set(names))
        with torch.no_grad():
            recorder.run(prepare(images, self.preprocessing))
        return recorder.found

    def run(self, images: NDArray[Any]) -> NDArray[np.float32]:
        """Give torch's answers to NHWC images, `[N, outputs]`."""
        with torch.no_grad():
            answers: NDArray[np.float32] = self.module(prepare(images, self.preprocessing)).numpy()
        return answers.reshape(len(images), -1)


class _Recorder(fx.Interpreter):
    """Runs the traced module and keeps what the graph has a value for; copies, because layers may work in place."""

    def __init__(self, captured: Captured, names: set[str] | None) -> None:
        super().__init__(captured.module)
        self._symbols = captured.symbols
        self._names = names
        self._signs = {n.inputs[0]: n.outputs[0] for n in captured.graph.nodes if isinstance(n.op, ops.Sign)}
        self.found: dict[str, NDArray[Any]] = {}

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        symbol = self._symbols.get(n.name)
        if symbol is not None and symbol.value not in self.found:
            bits = self._signs.get(symbol.value)
            if self._names is None or self._names & {symbol.value, bits}:
                self._keep(symbol, bits, result)
        return result

    def _keep(self, symbol: Symbol, bits: str | None, tensor: Tensor) -> None:
        array = tensor.numpy()
        if symbol.rank == 4:
            array = array.transpose(0, 2, 3, 1)
        else:
            array = (array if symbol.order is None else array[:, symbol.order])[:, None, None, :]
        self.found[symbol.value] = array.astype(np.int8) if symbol.kind is Kind.BITS else np.array(array, order="C")
        if bits is not None:
            self.found[bits] = sign(array)


def prepare(images: NDArray[Any], preprocessing: Mapping[str, Any] | None) -> Tensor:
    """Make NHWC images into the tensor that the module was trained on."""
    if preprocessing is None:
        return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2), dtype=np.float32))
    pixels = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2))).float()
    scale = torch.tensor(preprocessing["scale"], dtype=torch.float32).reshape(1, -1, 1, 1)
    offset = torch.tensor(preprocessing["offset"], dtype=torch.float32).reshape(1, -1, 1, 1)
    return pixels * scale + offset


def capture(module: nn.Module, example: Example, *, preprocessing: Mapping[str, Any] | None = None) -> Graph:
    """Capture a module in evaluation mode as a graph.

    `example` is an input tensor `[N, C, H, W]` or its shape. With `preprocessing` (docs/architecture.md) the graph
    takes uint8 images and begins with their normalization; without, it takes float32.
    """
    return trace(module, example, preprocessing=preprocessing).graph


def trace(
    module: nn.Module, example: Example, *, preprocessing: Mapping[str, Any] | None = None, name: str | None = None
) -> Captured:
    """Capture a module and keep the traced module beside the graph."""
    shape = _input_shape(example)
    traced = _traced(module)
    kind = Kind.FLOAT if preprocessing is None else Kind.UINT8
    builder = Builder(Value(IMAGE, kind, shape))
    source = Symbol(IMAGE, kind, shape, 4)
    if preprocessing is not None:
        builder.start("preprocessing", "pixels")
        source = builder.emit(_normalize(preprocessing, shape[2]), source)
    symbols: dict[fx.Node, Any] = {}
    for node in traced.graph.nodes:
        symbols[node] = _translate(builder, traced, node, symbols, source)
    output = next(node for node in traced.graph.nodes if node.op == "output")
    answer = _answer(symbols[output])
    nodes = tuple(builder.nodes)
    graph = prune(Graph(name or type(module).__name__, Value(IMAGE, kind, shape), nodes, answer.value))
    known = {node.name: symbol for node, symbol in symbols.items() if isinstance(symbol, Symbol)}
    return Captured(graph, traced, known, preprocessing)


def _traced(module: nn.Module) -> fx.GraphModule:
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.is_floating_point() and tensor.dtype != torch.float32:
            raise ExportError(f"parameter {name!r} is {tensor.dtype}, expected float32; call module.float() first")
    tracer = _Tracer()
    try:
        graph = tracer.trace(copy.deepcopy(module).cpu().eval())  # a copy: the caller may go on training
        return fx.GraphModule(tracer.root, graph)
    except (fx.proxy.TraceError, TypeError) as error:
        raise ExportError(
            f"torch.fx cannot trace {type(module).__name__}: {error}. Remove control flow that depends on tensors"
        ) from error


def _input_shape(example: Example) -> Shape:
    sizes = tuple(example.shape) if isinstance(example, Tensor) else tuple(int(size) for size in example)
    if len(sizes) == 4:
        sizes = sizes[1:]
    if len(sizes) != 3 or min(sizes) < 1:
        raise ExportError(f"expected an example of shape [N, C, H, W] or [C, H, W], got {list(sizes)}")
    channels, height, width = sizes
    return height, width, channels


def _normalize(preprocessing: Mapping[str, Any], channels: int) -> ops.Normalize:
    scale = np.asarray(preprocessing["scale"], dtype=np.float32)
    offset = np.asarray(preprocessing["offset"], dtype=np.float32)
    if scale.shape != (channels,) or offset.shape != (channels,):
        raise ExportError(
            f"preprocessing needs {channels} numbers in 'scale' and 'offset', got {scale.size} and {offset.size}"
        )
    return ops.Normalize(scale, offset)


def _translate(
    builder: Builder, traced: fx.GraphModule, node: fx.Node, symbols: Mapping[fx.Node, Any], source: Symbol
) -> Any:
    """Give what an fx node stands for: a symbol, or a plain value where no tensor of the network is involved."""
    args = fx.map_arg(node.args, symbols.__getitem__)
    options = fx.map_arg(node.kwargs, symbols.__getitem__)
    involved = any(isinstance(symbols[one], Symbol) for one in node.all_input_nodes)
    if node.op == "placeholder":
        return source
    if node.op == "output":
        return args[0]
    if node.op == "get_attr":
        return _attribute(traced, str(node.target))
    if node.op == "call_module":
        layer = traced.get_submodule(str(node.target))
        builder.start(str(node.target), str(node.target))
        handler = LAYERS.get(type(layer))
        if handler is None:
            raise builder.refuse(f"{type(layer).__name__} is not supported. Supported: {SUPPORTED}")
        return handler(builder, layer, *args, **options)
    builder.start(node.name, node.name)
    adapter = METHODS.get(str(node.target)) if node.op == "call_method" else FUNCTIONS.get(node.target)
    if not involved and adapter is None and callable(node.target):
        return node.target(*args, **options)
    if adapter is None:
        what = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
        raise builder.refuse(f"the operation {what!r} is not supported. Supported: {SUPPORTED}")
    return adapter(builder, *args, **options)


def _attribute(traced: fx.GraphModule, target: str) -> Any:
    value: Any = traced
    for part in target.split("."):
        value = getattr(value, part)
    return value


def _answer(symbol: Any) -> Symbol:
    if not isinstance(symbol, Symbol):
        raise ExportError(f"the module must return one tensor, it returns {type(symbol).__name__}")
    if symbol.shape[:2] != (1, 1) or symbol.order is not None:
        raise ExportError(
            f"the answer must be one vector per image [N, outputs], it is {list(symbol.torch_shape())}; "
            "end with a dense layer or a global average"
        )
    return symbol
