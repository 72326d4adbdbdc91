"""Schedules as a recipe spells them: `{ kind = "linear", start = 1e-2, end = 1e-3 }`, or a plain number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag, model_validator

from bitedge.train.optim.schedule import Cosine, Exponential, Geometric, Polynomial, Schedule, Triangle
from bitedge.train.recipes.validation import Record

NotNegative: TypeAlias = Annotated[float, Field(ge=0)]
Positive: TypeAlias = Annotated[float, Field(gt=0)]


class RangedRecipe(Record):
    """From `start` to `end` in so many `epochs`, by default the whole run; then `end` holds."""

    kind: str
    start: NotNegative
    end: NotNegative
    epochs: Positive | None = None

    def steps(self, steps_per_epoch: int) -> int | None:
        """Return the length in steps; None for the whole run."""
        return None if self.epochs is None else max(1, round(self.epochs * steps_per_epoch))


class LinearRecipe(RangedRecipe):
    """A straight line from `start` to `end`."""

    kind: Literal["linear"]

    def build(self, steps_per_epoch: int) -> Schedule:
        """Return the schedule in steps."""
        return Polynomial(self.start, self.end, self.steps(steps_per_epoch))


class PolynomialRecipe(RangedRecipe):
    """Keras' PolynomialDecay from `start` to `end`."""

    kind: Literal["polynomial"]
    power: Positive = 1.0

    def build(self, steps_per_epoch: int) -> Schedule:
        """Return the schedule in steps."""
        return Polynomial(self.start, self.end, self.steps(steps_per_epoch), power=self.power)


class GeometricRecipe(RangedRecipe):
    """Equal factors in equal times, from `start` to `end`; neither can be 0."""

    kind: Literal["geometric"]
    start: Positive
    end: Positive

    def build(self, steps_per_epoch: int) -> Schedule:
        """Return the schedule in steps."""
        return Geometric(self.start, self.end, self.steps(steps_per_epoch))


class CosineRecipe(RangedRecipe):
    """Half a cosine from `start` to `end`; with `log`, on a logarithmic axis."""

    kind: Literal["cosine"]
    log: bool = False

    def build(self, steps_per_epoch: int) -> Schedule:
        """Return the schedule in steps."""
        return Cosine(self.start, self.end, self.steps(steps_per_epoch), log=self.log)


class TriangleRecipe(Record):
    """From `start` up to `peak` in a share `at` of the run, then down to `end`."""

    kind: Literal["triangle"]
    start: NotNegative
    peak: Positive
    end: NotNegative
    at: Annotated[float, Field(gt=0, lt=1)] = 0.25

    @model_validator(mode="after")
    def _check_peak(self) -> TriangleRecipe:
        if self.peak < max(self.start, self.end):
            raise ValueError(f"peak = {self.peak}: expected at least start and end, {self.start} and {self.end}")
        return self

    def build(self, steps_per_epoch: int) -> Schedule:  # noqa: ARG002
        """Return the schedule in steps."""
        return Triangle(self.start, self.peak, self.end, self.at)


class ExponentialRecipe(Record):
    """Times `factor` every `every` epochs: at once (`staircase`) or smoothly."""

    kind: Literal["exponential"]
    start: NotNegative
    factor: Positive
    every: Positive
    staircase: bool = True

    def build(self, steps_per_epoch: int) -> Schedule:
        """Return the schedule in steps."""
        return Exponential(self.start, self.factor, self.every * steps_per_epoch, self.staircase)


ScheduleRecipe: TypeAlias = (
    LinearRecipe | PolynomialRecipe | GeometricRecipe | CosineRecipe | TriangleRecipe | ExponentialRecipe
)
KINDS: dict[str, type[Record]] = {
    "linear": LinearRecipe,
    "polynomial": PolynomialRecipe,
    "geometric": GeometricRecipe,
    "cosine": CosineRecipe,
    "triangle": TriangleRecipe,
    "exponential": ExponentialRecipe,
}


def _tag(value: Any) -> str | None:
    if isinstance(value, Mapping):
        return value.get("kind")
    return value.kind if isinstance(value, Record) else "number"  # type: ignore[attr-defined]


Scheduled: TypeAlias = Annotated[
    Annotated[float, Tag("number")]
    | Annotated[LinearRecipe, Tag("linear")]
    | Annotated[PolynomialRecipe, Tag("polynomial")]
    | Annotated[GeometricRecipe, Tag("geometric")]
    | Annotated[CosineRecipe, Tag("cosine")]
    | Annotated[TriangleRecipe, Tag("triangle")]
    | Annotated[ExponentialRecipe, Tag("exponential")],
    Discriminator(_tag),
]
"""A hyper-parameter: a number for the whole run, or a schedule, evaluated at every step."""


def build_schedule(value: float | ScheduleRecipe, steps_per_epoch: int) -> float | Schedule:
    """Turn a recipe's schedule into one that counts steps; `every` is in epochs there and in steps here."""
    return value.build(steps_per_epoch) if isinstance(value, Record) else value


def ends(value: float | ScheduleRecipe) -> tuple[float, ...]:
    """Return the values between which a hyper-parameter stays, as far as the recipe alone says."""
    if not isinstance(value, Record):
        return (value,)
    return tuple(getattr(value, name) for name in ("start", "peak", "end") if hasattr(value, name))
