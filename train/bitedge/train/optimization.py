"""The optimizer of a recipe with its schedules and its telemetry, as one thing that the loop steps and saves."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from bitedge.train.binary import is_binary
from bitedge.train.optim.bop import Bop
from bitedge.train.optim.bop2nd import Bop2ndOrder
from bitedge.train.progress import Progress
from bitedge.train.recipe import Recipe, Schedule


class Optimization:
    """Steps the optimizer of a recipe; hyper-parameters follow their schedules, one value per step."""

    def __init__(self, recipe: Recipe, module: nn.Module, steps_per_epoch: int) -> None:
        self.recipe = recipe.optimizer
        self.steps_per_epoch, self.steps = steps_per_epoch, recipe.epochs * steps_per_epoch
        self.done = 0
        o = self.recipe
        binary = [p for p in module.parameters() if is_binary(p)]
        real = [p for p in module.parameters() if not is_binary(p)]
        self.adam = torch.optim.Adam(real, lr=1e-2, eps=o.adam_eps)
        self.binary: Any = None
        if o.rule == "bop":
            self.binary = Bop(binary)
        elif o.rule == "bop2nd":
            self.binary = Bop2ndOrder(binary, eps=o.eps, mode=o.mode or "biased")

    def hyper(self) -> dict[str, float]:
        """The values of the next step."""
        return {name: self._value(value) for name, value in self.recipe.scheduled().items()}

    def _value(self, s: float | Schedule) -> float:
        if not isinstance(s, Schedule):
            return s
        share = min(1.0, self.done / self.steps)
        if s.kind == "exponential":
            return s.start * s.factor ** math.floor(self.done / (s.every * self.steps_per_epoch))
        if s.kind == "geometric":
            return s.start * (s.end / s.start) ** share
        return s.start + (s.end - s.start) * share

    def step(self, scaler: Any) -> None:
        """Apply the gradients and clear them."""
        values = self.hyper()
        self.adam.param_groups[0]["lr"] = values["lr"]
        self.adam.step()
        if self.binary is not None:
            for group in self.binary.param_groups:
                group.update({k: v for k, v in values.items() if k != "lr"})
            self.binary.step()
            self.binary.zero_grad()
        self.adam.zero_grad()
        self.done += 1

    def telemetry(self, report: Progress) -> dict[str, Any]:
        """What the epoch did."""
        return self.hyper()

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next step depends on."""
        return {"done": self.done, "adam": self.adam.state_dict(), "binary": self.binary and self.binary.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.done = state["done"]
        self.adam.load_state_dict(state["adam"])
        if self.binary is not None:
            self.binary.load_state_dict(state["binary"])
