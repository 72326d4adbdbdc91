"""From a module to one functional program: `torch.export`, with every refusal in words."""

from __future__ import annotations

import copy
import inspect
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export.graph_signature import InputKind, OutputKind

from bitedge.export.capture.idioms import drop_straight_through
from bitedge.export.errors import ExportError
from bitedge.train.nn.parameter import is_binary

BATCH = 2
"""Images in the example: more than one, so that the batch can be told from a dimension of size 1."""


@dataclass(frozen=True, eq=False)
class Program:
    """A module as a graph of functional operators on its image; `constants` are its parameters and buffers by node."""

    graph: fx.GraphModule
    constants: dict[str, Tensor]
    image: str
    answer: fx.Node


def export_program(module: nn.Module, sizes: tuple[int, int, int]) -> tuple[nn.Module, Program]:
    """Give a copy of the module in evaluation mode and its program for images of channels, height and width."""
    _check_parameters(module)
    _check_inputs(module)
    copied = copy.deepcopy(module).cpu().eval()  # a copy: the caller may go on training
    image = torch.zeros(BATCH, *sizes)
    with _quiet(), _entered(copied) as path:
        try:
            exported = torch.export.export(copied, (image,), strict=False)
        except Exception as error:
            where = f"layer {path[-1]!r} of {type(module).__name__}" if path and path[-1] else type(module).__name__
            raise ExportError(f"torch.export cannot trace {where}: {_why(error)}") from error
        outputs = [spec for spec in exported.graph_signature.output_specs if spec.kind is OutputKind.USER_OUTPUT]
        if len(outputs) != 1 or not exported.call_spec.out_spec.is_leaf():
            kind = getattr(exported.call_spec.out_spec.type, "__name__", "nothing")
            raise ExportError(f"the module must return one tensor, it returns {kind} with {len(outputs)} tensors")
        functional = exported.run_decompositions({})
    return copied, _program(functional)


def _program(exported: torch.export.ExportedProgram) -> Program:
    constants: dict[str, Tensor] = {}
    image = ""
    stored: dict[str, Any] = {**exported.state_dict, **exported.constants}
    for spec in exported.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            image = spec.arg.name
        elif spec.target is not None:
            constants[spec.arg.name] = stored[spec.target].detach()
    (name,) = (s.arg.name for s in exported.graph_signature.output_specs if s.kind is OutputKind.USER_OUTPUT)
    graph = exported.graph_module
    answer = next(node for node in graph.graph.nodes if node.name == name)
    output = next(node for node in graph.graph.nodes if node.op == "output")
    output.args = ((answer,),)  # what else it gives back are inputs and buffers that were written in place
    for node in graph.graph.nodes:
        if node.target is torch.ops.aten.view.default:
            node.target = torch.ops.aten.reshape.default  # real strides may be others than the traced ones
    drop_straight_through(graph.graph, set(constants))
    graph.recompile()
    return Program(graph, constants, image, output.args[0][0])


def _check_parameters(module: nn.Module) -> None:
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.is_floating_point() and tensor.dtype != torch.float32:
            raise ExportError(f"parameter {name!r} is {tensor.dtype}, expected float32; call module.float() first")
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise ExportError(f"parameter {name!r} holds NaN or infinity: the network is not usable, train it again")
        if is_binary(tensor) and not bool((tensor.detach().abs() == 1).all()):
            layer = name.rpartition(".")[0]
            raise ExportError(
                f"layer {layer!r}: its weights are not exactly ±1; "
                "take one step of a binary optimizer, or binarize them"
            )


def _check_inputs(module: nn.Module) -> None:
    """Refuse a module that needs more than an image."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(module.forward).parameters.values()
    needed = [p.name for p in parameters if p.kind in kinds and p.default is inspect.Parameter.empty]
    if len(needed) > 1:
        raise ExportError(
            f"{type(module).__name__}.forward needs {len(needed)} inputs ({', '.join(needed)}), expected one; "
            "wrap it in a module whose forward takes the image and fixes the others"
        )


def _why(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if any("data-dependent" in line for line in lines):
        place = next((line for line in lines if line.startswith(("if ", "while "))), "")
        at = f" at `{place}`" if place else ""
        return (
            f"its control flow depends on the numbers in a tensor{at}. "
            "Write it without that condition, or with torch.where"
        )
    return lines[0] if lines else type(error).__name__


@contextmanager
def _entered(module: nn.Module) -> Iterator[list[str]]:
    """Keep the paths of the modules whose forward pass is under way, so that an error can name the innermost."""
    path: list[str] = []
    handles: list[Any] = []
    for name, layer in module.named_modules():
        handles.append(layer.register_forward_pre_hook(lambda *_, name=name: path.append(name)))
        handles.append(layer.register_forward_hook(lambda *_: (path.pop(), None)[1]))
    try:
        yield path
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep torch's own warnings and logs of tracing to itself: what matters is raised."""
    logger = logging.getLogger("torch.fx.experimental.symbolic_shapes")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
