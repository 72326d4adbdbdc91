"""A torch module that computes what an imported file says, layer by layer."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from bitedge.export.capture.fold import ZeroWeightError, signs_and_scales
from bitedge.export.errors import ExportError

Handler = Callable[..., Any]
LIMIT = 2**31
"""Elements of the largest tensor that an imported network may have."""


@dataclass(frozen=True)
class Wire:
    """An argument of a layer that depends on the image: the tensor of this name."""

    name: str


class Layer(nn.Module):
    """One operator of the file. Floats among its constants are parameters, ±s weights and integers are buffers."""

    def __init__(self, handler: Handler, arguments: Sequence[Any]) -> None:
        super().__init__()
        self._handler = handler
        self._arguments: list[Any] = []
        for number, argument in enumerate(arguments):
            if isinstance(argument, Tensor):
                name = f"constant{number}"
                if _trainable(argument):
                    self.register_parameter(name, nn.Parameter(argument))
                else:
                    self.register_buffer(name, argument)
                argument = _Stored(name)
            self._arguments.append(argument)

    def forward(self, *tensors: Tensor) -> Any:
        """Apply the operator to the tensors that depend on the image, with its constants in their places."""
        entering = iter(tensors)
        arguments = []
        for argument in self._arguments:
            if isinstance(argument, Wire):
                argument = next(entering)
            elif isinstance(argument, _Stored):
                argument = getattr(self, argument.name)
            arguments.append(argument)
        return self._handler(*arguments)


@dataclass(frozen=True)
class _Stored:
    name: str


def _trainable(constant: Tensor) -> bool:
    """Tell whether a constant is a float weight; ±s weights are bits, and a disturbance would make them others."""
    if not constant.is_floating_point() or constant.ndim == 0:
        return False
    if constant.ndim < 2:
        return True
    try:
        return signs_and_scales(constant.numpy()) is None
    except ZeroWeightError:
        return False


@dataclass(frozen=True)
class _Step:
    path: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class ImportedModule(nn.Module):
    """The layers of a file in their order; its image is `[N, C, H, W]`.

    Layers are added one by one, each is tried on the shapes alone, so that whatever does not fit is refused by name.
    """

    def __init__(self, image: str, shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.image = image
        self.answer = image
        self._steps: list[_Step] = []
        self._fake = FakeTensorMode(allow_non_fake_inputs=True)
        with self._fake:
            self._tried: dict[str, Tensor] = {image: torch.zeros(1, *shape)}

    def add(self, name: str, operator: str, handler: Handler, arguments: Sequence[Any], outputs: Sequence[str]) -> None:
        """Add a layer that makes these tensors; `Wire`s among the arguments are tensors made before."""
        path = self._path(name or operator)
        layer = Layer(handler, arguments)
        inputs = tuple(argument.name for argument in arguments if isinstance(argument, Wire))
        try:
            with self._fake, torch.no_grad():
                results = layer(*(self._tried[each] for each in inputs))
        except ExportError as error:
            raise ExportError(f"layer {path!r} ({operator}): {error}") from error
        except Exception as error:
            raise ExportError(f"layer {path!r} ({operator}) does not fit its inputs: {_first_line(error)}") from error
        made = list(results) if isinstance(results, list | tuple) else [results]
        for tensor in made:
            if tensor.numel() > LIMIT:
                raise ExportError(f"layer {path!r} ({operator}) would give {tuple(tensor.shape)}, too large to be real")
        self.add_module(path, layer)
        self._steps.append(_Step(path, inputs, tuple(outputs)))
        self._tried.update(zip(outputs, made, strict=False))

    def shape(self, name: str) -> tuple[int, ...]:
        """Give the shape of a tensor for one image."""
        return tuple(self._tried[name].shape)

    def made(self, name: str) -> bool:
        """Tell whether a tensor of this name depends on the image."""
        return name in self._tried

    def paths(self) -> dict[str, str]:
        """Give for each layer its (first) tensor, by path."""
        return {step.path: step.outputs[0] for step in self._steps}

    def _path(self, name: str) -> str:
        plain = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")[:80] or "layer"
        if plain[0].isdigit():
            plain = f"layer_{plain}"
        free, number = plain, 2
        while hasattr(self, free):
            free, number = f"{plain}_{number}", number + 1
        return free

    def forward(self, image: Tensor) -> Tensor:
        """Run all layers."""
        made: dict[str, Any] = {self.image: image}
        for step in self._steps:
            results = getattr(self, step.path)(*(made[name] for name in step.inputs))
            results = results if isinstance(results, list | tuple) else (results,)
            made.update(zip(step.outputs, results, strict=False))
        answer: Tensor = made[self.answer]
        return answer

    def __deepcopy__(self, memo: dict[int, Any]) -> ImportedModule:
        """Copy all but the shapes that were tried: they belong to reading."""
        copied = ImportedModule.__new__(ImportedModule)
        memo[id(self)] = copied
        for key, value in self.__dict__.items():
            copied.__dict__[key] = {} if key == "_tried" else None if key == "_fake" else copy.deepcopy(value, memo)
        return copied


def constant(array: NDArray[Any]) -> Tensor:
    """Make a constant of a file into a tensor; half and double precision become float32."""
    if array.dtype.kind == "f":
        if not np.isfinite(array).all():
            raise ExportError("a constant holds NaN or infinity: the network is not usable")
        array = array.astype(np.float32)
    return torch.from_numpy(np.array(array, order="C"))


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:200] if lines else type(error).__name__
