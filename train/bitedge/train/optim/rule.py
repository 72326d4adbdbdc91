"""What an update rule is: its hyper-parameters, its state and its mathematics, free of any optimizer class.

`Bop` and `Bop2ndOrder` are optimizers of one rule; `ModelOptimizer` holds one rule per parameter group.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor

from bitedge.train.errors import TrainError

from .hyper import as_tensor, check_value
from .kernel import Scalar

Group: TypeAlias = dict[str, Any]
ParameterState: TypeAlias = dict[str, Any]
State: TypeAlias = MutableMapping[Tensor, ParameterState]


class Rule(ABC):
    """One update rule for the parameters of a group."""

    name: ClassVar[str]
    binary: ClassVar[bool]
    """Whether it changes binary parameters, and only those, or real ones, and only those."""
    scheduled: ClassVar[tuple[str, ...]]
    """The fields that a schedule may drive; tensors when `capturable`."""
    defaults: ClassVar[Mapping[str, Any]]
    """Every field of a group with its default, as torch keeps them."""
    slots: ClassVar[tuple[str, ...]]
    """The names of what it keeps for each parameter."""

    def prepare(self, group: Group) -> None:
        """Fill in missing fields, check every value, and turn scheduled fields into tensors where asked."""
        for key, value in self.defaults.items():
            group.setdefault(key, value)
        for key in self.defaults:
            check_value(key, group[key], context=f"rule {self.name!r}")
        if group["capturable"]:
            for key in self.scheduled:
                group[key] = as_tensor(group[key], group["params"][0].device)

    def update(self, group: Group, state: State) -> None:
        """One step for every parameter of the group that has a gradient."""
        params: list[Tensor] = []
        grads: list[Tensor] = []
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            if parameter.grad.layout is not torch.strided:
                raise TrainError(f"rule {self.name!r} needs dense gradients, got layout {parameter.grad.layout}")
            self.initialize(parameter, group, state[parameter])
            params.append(parameter)
            grads.append(parameter.grad)
        if params:
            self.apply(params, grads, [state[parameter] for parameter in params], group)

    @abstractmethod
    def initialize(self, parameter: Tensor, group: Group, state: ParameterState) -> None:
        """Create what is missing in the state of one parameter."""

    @abstractmethod
    def apply(self, params: list[Tensor], grads: list[Tensor], states: list[ParameterState], group: Group) -> None:
        """Hand the gathered tensors to the pure function that holds the mathematics."""


class BinaryRule(Rule):
    """A rule that flips weights which are exactly ±1, by an average of their gradients.

    State is always float32: with gamma = 1e-7 a half-precision average would never move.
    """

    binary = True
    averages: ClassVar[tuple[str, ...]] = ("gamma",)
    """The rates of the averages that follow each other between gradient and decision."""
    options: ClassVar[Mapping[str, Any]] = {
        "warm_start": 0.0,  # c of m0 = -c·w
        "track_flips": False,
        "maximize": False,
        "foreach": None,
        "capturable": False,
        "compiled": False,
        "lr": 1.0,  # never read: torch's schedulers and many trainers expect the key
    }

    def prepare(self, group: Group) -> None:
        """Check the fields, and that at most one way to run is asked for."""
        super().prepare(group)
        if group["foreach"] and group["compiled"]:
            raise TrainError(f"rule {self.name!r}: foreach and compiled are two ways to run a step, choose one")

    def initialize(self, parameter: Tensor, group: Group, state: ParameterState) -> None:
        """Create the gradient average, at zero or warm at `-warm_start·w`, and the flip record where asked."""
        if "exp_avg" not in state:
            check_binary(parameter, self.name)
            state["exp_avg"] = zeros_like(parameter)
            if group["warm_start"]:
                state["exp_avg"].sub_(parameter, alpha=group["warm_start"])
        if group["track_flips"] and "flipped" not in state:
            state["flipped"] = torch.zeros_like(parameter, dtype=torch.bool, memory_format=torch.preserve_format)

    def deviation(self, group: Group, state: ParameterState) -> Scalar | None:  # noqa: ARG002
        """The standard deviation that noise has left in `signal`; None for a rule that does not track it."""
        return None

    @abstractmethod
    def signal(self, state: ParameterState, group: Group) -> Tensor:
        """The value s that the last step compared with tau: a weight was flipped where w·s > tau."""

    @abstractmethod
    def tau(self, group: Group, state: ParameterState) -> Scalar:
        """The threshold of a parameter in the units of `signal`."""


def zeros_like(parameter: Tensor) -> Tensor:
    """Float32 zeros in the layout of the parameter."""
    return torch.zeros_like(parameter, dtype=torch.float32, memory_format=torch.preserve_format)


def check_binary(parameter: Tensor, name: str) -> None:
    """Refuse weights that are not exactly ±1: a flip could never make them so."""
    if torch.compiler.is_compiling():
        return
    wrong = parameter.abs() != 1
    if wrong.any():
        example = parameter[wrong].flatten()[0].item()
        raise TrainError(f"rule {name!r} flips weights that are exactly -1 or +1, got {example:g}: binarize them first")


def use_foreach(group: Group, params: Iterable[Tensor]) -> bool:
    """Whether to take the multi-tensor path: as the group says, else where launches cost more than memory."""
    if group["foreach"] is not None:
        return bool(group["foreach"])
    return not group["compiled"] and all(parameter.device.type == "cuda" for parameter in params)


def float_grads(grads: Iterable[Tensor], maximize: bool) -> list[Tensor]:
    """The gradients to descend, as float32."""
    return [grad.float().neg() if maximize else grad.float() for grad in grads]


def flip(weight: Tensor, margin: Tensor, tau: Scalar, flipped: Tensor | None) -> None:
    """Negate the weights whose margin w·s is above tau; `margin` becomes the mask of the flips.

    w - 2·w·mask is exact for w = ±1, a tie or a NaN margin keeps the weight, and no weight can become zero.
    """
    margin.gt_(tau)
    weight.addcmul_(weight, margin.to(weight.dtype), value=-2)
    if flipped is not None:
        flipped.logical_or_(margin.bool())
