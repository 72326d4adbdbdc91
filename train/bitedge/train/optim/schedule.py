"""Schedules of hyper-parameters: pure functions of the step number."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from bitedge.train.errors import TrainError


class Schedule(ABC):
    """A value for every step: `value(0, total)` is used by the first step, and from `total` on it stays."""

    @abstractmethod
    def value(self, step: int, total: int) -> float:
        """The value at a step, of `total` steps."""

    def ends(self, total: int) -> tuple[float, float]:
        """The first and the last value; everything between lies between them."""
        return self.value(0, total), self.value(total, total)


@dataclass(frozen=True)
class Constant(Schedule):
    """The same value at every step."""

    start: float

    def value(self, step: int, total: int) -> float:  # noqa: ARG002
        """The constant."""
        return self.start


@dataclass(frozen=True)
class Ranged(Schedule):
    """A schedule from `start` to `end`, rising or falling, reached at `steps` (default: the whole run)."""

    start: float
    end: float
    steps: int | None = None

    def value(self, step: int, total: int) -> float:
        """The value at a step, held at `end` from the last step on."""
        length = total if self.steps is None else self.steps
        if step >= length:
            return self.end
        return self.start if step <= 0 else self.between(step / length)

    @abstractmethod
    def between(self, share: float) -> float:
        """The value after a share, strictly between 0 and 1, of the way."""


@dataclass(frozen=True)
class Polynomial(Ranged):
    """Keras' PolynomialDecay: `(start - end)·(1 - share)^power + end`; linear by default, as in the paper."""

    power: float = 1.0

    def between(self, share: float) -> float:
        """Interpolate on the power."""
        return (self.start - self.end) * math.pow(1.0 - share, self.power) + self.end


@dataclass(frozen=True)
class Triangle(Schedule):
    """Rise linearly from `start` to `peak` at a share `at` of the run, then fall linearly to `end`.

    Smith, "Cyclical Learning Rates for Training Neural Networks", https://arxiv.org/abs/1506.01186, as one cycle.
    """

    start: float
    peak: float
    end: float
    at: float

    def __post_init__(self) -> None:
        if not 0 < self.at < 1 or self.peak < max(self.start, self.end):
            raise TrainError(f"a triangle has its largest value inside the run, got peak {self.peak:g} at {self.at:g}")

    def value(self, step: int, total: int) -> float:
        """The value at a step, held at `end` from the last step on."""
        share = max(step / total, 0.0)
        if share >= 1:
            return self.end
        if share < self.at:
            return self.start + (self.peak - self.start) * share / self.at
        return self.peak + (self.end - self.peak) * (share - self.at) / (1 - self.at)

    def ends(self, total: int) -> tuple[float, float]:  # noqa: ARG002
        """The smallest and the largest value."""
        return min(self.start, self.end), self.peak


@dataclass(frozen=True)
class Geometric(Ranged):
    """Equal factors in equal times: a straight line on a logarithmic axis."""

    def __post_init__(self) -> None:
        if not (self.start > 0 and self.end > 0):
            raise TrainError(f"a geometric schedule needs positive ends, got {self.start:g} to {self.end:g}")

    def between(self, share: float) -> float:
        """Interpolate the logarithm."""
        return math.pow(self.start, 1.0 - share) * math.pow(self.end, share)


@dataclass(frozen=True)
class Cosine(Ranged):
    """Half a cosine from start to end; on a logarithmic axis with `log=True`."""

    log: bool = False

    def __post_init__(self) -> None:
        if self.log and not (self.start > 0 and self.end > 0):
            raise TrainError(f"a logarithmic cosine needs positive ends, got {self.start:g} to {self.end:g}")

    def between(self, share: float) -> float:
        """Interpolate on the cosine."""
        left = (1.0 + math.cos(math.pi * share)) / 2.0
        if self.log:
            return math.pow(self.start, left) * math.pow(self.end, 1.0 - left)
        return self.end + (self.start - self.end) * left


@dataclass(frozen=True)
class Exponential(Schedule):
    """Times `factor` every `every` steps, with `factor` above or below 1: at once, as in the paper, or smoothly."""

    start: float
    factor: float
    every: float
    staircase: bool = True

    def __post_init__(self) -> None:
        if not (self.factor > 0 and self.every > 0):
            raise TrainError(
                f"an exponential schedule needs a positive factor and length, got {self.factor:g} every {self.every:g}"
            )

    def value(self, step: int, total: int) -> float:
        """The value at a step; after the run, that of its last step."""
        power = max(0, min(step, total - 1)) / self.every
        return self.start * math.pow(self.factor, math.floor(power) if self.staircase else power)


SCHEDULES: Mapping[str, type[Schedule]] = {
    "constant": Constant,
    "linear": Polynomial,
    "polynomial": Polynomial,
    "exponential": Exponential,
    "geometric": Geometric,
    "cosine": Cosine,
    "triangle": Triangle,
}


def as_schedule(value: float | Schedule) -> Schedule:
    """A number is a constant schedule."""
    return value if isinstance(value, Schedule) else Constant(value)
