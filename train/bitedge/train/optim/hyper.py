"""Ranges of the hyper-parameters, checked in one place by constructors, parameter groups and schedules."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bitedge.train.errors import TrainError

MODES = ("biased", "unbiased", "adam")
THRESHOLDS = ("absolute", "noise")


@dataclass(frozen=True)
class Range:
    """An interval of allowed values; its text is what the error message shows."""

    low: float
    high: float = math.inf
    low_included: bool = True

    def holds(self, value: float) -> bool:
        """Tell whether a finite value lies inside."""
        above = value >= self.low if self.low_included else value > self.low
        return above and value <= self.high and math.isfinite(value)

    def __str__(self) -> str:
        left = "[" if self.low_included else "("
        return f"{left}{self.low:g}, {self.high:g}]" if math.isfinite(self.high) else f"{left}{self.low:g}, inf)"


RANGES: Mapping[str, Range] = {
    "gamma": Range(0.0, 1.0),
    "sigma": Range(0.0, 1.0),
    "alpha": Range(0.0, 1.0),
    "tau": Range(0.0),
    "eps": Range(0.0),
    "lr": Range(0.0),
    "weight_decay": Range(0.0),
    "warm_start": Range(0.0),
    "clip": Range(0.0, low_included=False),
}
CHOICES: Mapping[str, tuple[str, ...]] = {"mode": MODES, "threshold": THRESHOLDS}


def check_value(name: str, value: Any, *, context: str) -> None:
    """Refuse a hyper-parameter outside its range; names without a range pass."""
    if name in CHOICES and value not in CHOICES[name]:
        raise TrainError(f"{context}: {name} must be one of {', '.join(CHOICES[name])}, got {value!r}")
    if name == "betas":
        if len(value) != 2 or not all(0.0 <= float(beta) < 1.0 for beta in value):
            raise TrainError(f"{context}: betas must be two numbers in [0, 1), got {value!r}")
        return
    if name not in RANGES:
        return
    if isinstance(value, Tensor) and value.numel() != 1:
        raise TrainError(f"{context}: {name} must be a number or a one-element tensor, got shape {tuple(value.shape)}")
    if isinstance(value, bool) or not isinstance(value, int | float | Tensor):
        raise TrainError(f"{context}: {name} must be a number, got {value!r}")
    if not RANGES[name].holds(float(value)):
        raise TrainError(f"{context}: {name} must lie in {RANGES[name]}, got {float(value):g}")


def as_tensor(value: float | Tensor, device: torch.device) -> Tensor:
    """A hyper-parameter as a 0-dim tensor: double, so that it rounds to float32 exactly as a Python number does."""
    if isinstance(value, Tensor):
        return value
    return torch.tensor(value, dtype=torch.float64, device=device)


def square_root(value: float | Tensor) -> float | Tensor:
    """The square root of a hyper-parameter, number or tensor."""
    return value.sqrt() if isinstance(value, Tensor) else math.sqrt(value)
