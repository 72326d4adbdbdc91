"""Capture: from any `torch.nn.Module` that `torch.export` can trace to the graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx, nn

from bitedge.export.capture.builder import Builder, Symbol, describe, place
from bitedge.export.capture.torch_export import BATCH, Program, export_program
from bitedge.export.capture.walk import Walk
from bitedge.export.errors import ExportError
from bitedge.export.ir import ops
from bitedge.export.ir.graph import Graph, Kind, Shape, Value, prune

Example = Tensor | Sequence[int]
IMAGE = "image"
"""The name of a graph's input."""


class Reference(Protocol):
    """The engine that an imported network comes from: it answers in place of torch."""

    name: str

    def run(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        """Answer images `[N, C, H, W]` with `[N, outputs]`."""
        ...

    def tensors(self, images: NDArray[np.float32], paths: Iterable[str]) -> dict[str, NDArray[Any]]:
        """Give what the modules at these paths make, in torch's layout, as far as the engine shows it."""
        ...


@dataclass(frozen=True, eq=False)
class Captured:
    """A captured module: its graph, and the module itself, the reference for every value of the graph.

    An imported network has another reference, the engine that it comes from.
    """

    graph: Graph
    module: nn.Module
    program: Program
    symbols: Mapping[str, Symbol]
    preprocessing: Mapping[str, Any] | None
    reference: Reference | None = None

    def tensors(self, images: NDArray[Any], names: Iterable[str] | None = None) -> dict[str, NDArray[Any]]:
        """Run torch on NHWC images and give its tensors by value name, NHWC; values that are bits as int8 ±1.

        The program was traced for a batch of two, so that is how it runs.
        """
        recorder = _Recorder(self, None if names is None else set(names))
        parts = []
        for start in range(0, len(images), BATCH):
            batch = images[start : start + BATCH]
            filled = np.concatenate([batch, batch[:1]])[:BATCH]
            parts.append({name: array[: len(batch)] for name, array in recorder.record(filled).items()})
        found = {name: np.concatenate([part[name] for part in parts]) for name in (parts[0] if parts else ())}
        return found if self.reference is None else found | self._reference_tensors(self.reference, images, set(found))

    def _reference_tensors(
        self, reference: Reference, images: NDArray[Any], names: set[str]
    ) -> dict[str, NDArray[Any]]:
        """Give the reference's own tensors for these values, as far as it has them."""
        last = {place(node)[0]: node.name for node in self.program.graph.graph.nodes if node.op == "call_function"}
        symbols = {path: self.symbols[name] for path, name in last.items() if name in self.symbols}
        wanted = [path for path, symbol in symbols.items() if symbol.value in names]
        given = reference.tensors(prepare(images, self.preprocessing).numpy(), wanted)
        return {symbols[path].value: nhwc(symbols[path], torch.from_numpy(array)) for path, array in given.items()}

    def run(self, images: NDArray[Any]) -> NDArray[np.float32]:
        """Give the answers of the module, or of its reference, to NHWC images, `[N, outputs]`."""
        prepared = prepare(images, self.preprocessing)
        if self.reference is not None:
            return self.reference.run(prepared.numpy())
        with torch.no_grad():
            answers: NDArray[np.float32] = self.module(prepared).numpy()
        return answers.reshape(len(images), -1)


class _Recorder(fx.Interpreter):
    """Runs the program and keeps what the graph has a value for."""

    def __init__(self, captured: Captured, names: set[str] | None) -> None:
        super().__init__(captured.program.graph)
        self._captured = captured
        self._names = names
        self._found: dict[str, NDArray[Any]] = {}

    def record(self, images: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Run one batch and give its values."""
        program, self._found = self._captured.program, {}
        image = prepare(images, self._captured.preprocessing)
        inputs = [node for node in program.graph.graph.nodes if node.op == "placeholder"]
        with torch.no_grad():
            self.run(*(image if node.name == program.image else program.constants.get(node.name) for node in inputs))
        return self._found

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        symbol = self._captured.symbols.get(n.name)
        wanted = symbol is not None and (self._names is None or symbol.value in self._names)
        if symbol is not None and wanted and symbol.value not in self._found:
            self._found[symbol.value] = nhwc(symbol, result)
        return result


def nhwc(symbol: Symbol, tensor: Tensor) -> NDArray[Any]:
    """Give a tensor of torch as the value of the graph that it is."""
    array = tensor.numpy()
    if symbol.rank == 4:
        array = array.transpose(0, 2, 3, 1)
    else:
        array = (array if symbol.order is None else array[:, symbol.order])[:, None, None, :]
    if symbol.kind is Kind.BITS:
        return (array / np.float32(symbol.factor)).astype(np.int8)
    return np.array(array, order="C")


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
    module: nn.Module,
    example: Example,
    *,
    preprocessing: Mapping[str, Any] | None = None,
    name: str | None = None,
    reference: Reference | None = None,
) -> Captured:
    """Capture a module and keep the traced program beside the graph."""
    shape = _input_shape(example)
    kind = Kind.FLOAT if preprocessing is None else Kind.UINT8
    builder = Builder(Value(IMAGE, kind, shape))
    source = Symbol(IMAGE, kind, shape, 4)
    if preprocessing is not None:
        builder.call("pixels")
        builder.layer = "preprocessing"
        source = builder.emit(_normalize(preprocessing, shape[2]), source)
    copied, program = export_program(module, (shape[2], shape[0], shape[1]))
    walk = Walk(builder, program, source)
    answer = builder.plain(_answer(walk.answer()))
    graph = Graph(name or type(module).__name__, Value(IMAGE, kind, shape), tuple(builder.nodes), answer.value)
    return Captured(prune(graph), copied, program, walk.symbols(), preprocessing, reference)


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


def _answer(symbol: Any) -> Symbol:
    if not isinstance(symbol, Symbol) or symbol.shape[:2] != (1, 1) or symbol.order is not None:
        shape = describe(symbol) if hasattr(symbol, "torch_shape") else "a constant"
        raise ExportError(
            f"the answer must be one vector per image [N, outputs], it is {shape}; "
            "end with a dense layer or a global average"
        )
    return symbol
