"""The optimizer of a recipe: one table per update rule, made from the rules themselves.

A flip rule of `bitedge.train.optim.RULES` is all that a recipe needs to know: the fields that it schedules, its other
fields with their defaults, and the ranges in `optim.hyper`. Adding a rule there adds it here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, cast

from pydantic import Field, create_model, model_validator

from bitedge.train.errors import TrainError
from bitedge.train.optim.hyper import CHOICES, check_value
from bitedge.train.optim.registry import RULES
from bitedge.train.optim.rule import Rule
from bitedge.train.recipes.schedule import NotNegative, Positive, Scheduled, ScheduleRecipe, ends
from bitedge.train.recipes.validation import Record

RUNTIME_FIELDS = ("track_flips", "maximize", "foreach", "capturable", "compiled", "lr")
"""Fields of a rule's groups that are no hyper-parameters: the engine decides them."""


class SwitchRecipe(Record):
    """Go on with Bop from the start of this epoch: the paper's own suggestion for the last part of a run."""

    epoch: Annotated[int, Field(ge=1)]
    gamma: Scheduled
    tau: Scheduled


class OptimizerRecipe(Record):
    """What every rule has: the optimizer of the real parameters, and how gradients reach it.

    `method` trains what is not binary: `adam` (coupled weight decay), `adamw` (decoupled; Loshchilov and Hutter,
    https://arxiv.org/abs/1711.05101) or `sgd` with momentum. `accumulate` adds up the gradients of so many batches
    before a step. `clip_norm` bounds the norm of the gradients of the real parameters (Pascanu et al.,
    https://arxiv.org/abs/1211.5063); a flip rule has a scale of its own.
    """

    rule: str
    lr: Scheduled
    method: Literal["adam", "adamw", "sgd"] = "adam"
    adam_eps: NotNegative = 1e-7
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9  # of sgd
    nesterov: bool = False  # of sgd
    bias_factor: Positive = 1.0  # of sgd: norms and biases learn so many times faster
    weight_decay: NotNegative = 0.0  # of the real weights with two or more axes: convolutions and dense layers
    clip: Positive = 1.0  # bound of latent weights
    accumulate: Annotated[int, Field(ge=1)] = 1
    clip_norm: Positive | None = None
    switch: SwitchRecipe | None = None

    @property
    def binary(self) -> bool:
        """Whether the rule flips binary weights."""
        return self.rule in RULES and RULES[self.rule].binary

    def scheduled(self) -> dict[str, float | ScheduleRecipe]:
        """Return the hyper-parameters that may follow a schedule, by name."""
        names = ("lr", *(RULES[self.rule].scheduled if self.binary else ()))
        return {name: getattr(self, name) for name in names}

    def fields(self) -> dict[str, Any]:
        """Return the other fields of the rule, those that no schedule drives."""
        if not self.binary:
            return {}
        return {name: getattr(self, name) for name in rule_fields(RULES[self.rule])}

    @model_validator(mode="before")
    @classmethod
    def _drop_old_default(cls, table: Any) -> Any:
        """Version 0.1 wrote `eps = 1e-10` into the recipe of every run, also of rules without one."""
        if isinstance(table, dict) and "eps" in table and "eps" not in cls.model_fields and table["eps"] == 1e-10:
            return {key: value for key, value in table.items() if key != "eps"}
        return table

    @model_validator(mode="after")
    def _check_ranges(self) -> OptimizerRecipe:
        values: dict[str, Any] = {**self.scheduled(), **self.fields()}
        if self.method != "sgd" and (self.nesterov or self.bias_factor != 1):
            raise ValueError(f"optimizer.nesterov and bias_factor belong to method 'sgd', not to {self.method!r}")
        if self.switch is not None:
            if self.rule != "bop2nd":
                raise ValueError(f"optimizer.switch goes from 'bop2nd' to Bop, not from {self.rule!r}: remove it")
            values |= {"switch.gamma": self.switch.gamma, "switch.tau": self.switch.tau}
        try:
            for name, value in values.items():
                field = name.rpartition(".")[2]
                for each in ends(value) if not isinstance(value, str | bool) else (value,):
                    check_value(field, each, context=f"optimizer.{name}")
        except TrainError as error:
            raise ValueError(str(error)) from error
        return self


class LatentRecipe(OptimizerRecipe):
    """Real weights behind a sign, trained by `method` like the rest and clipped to [-clip, clip]: the baseline.

    `stage = "activations"` is the first of two stages: activations are binary, weights stay real (Martinez et al.,
    https://arxiv.org/abs/2003.11535; Liu et al., https://arxiv.org/abs/2003.03488). The second stage starts from that
    run by `network.init` and usually has no weight decay (Liu et al., https://arxiv.org/abs/2106.11309).
    """

    rule: Literal["latent"]
    stage: Literal["both", "activations"] = "both"
    latent_decay: NotNegative = 0.0  # weight decay of the latent weights


class RealRecipe(OptimizerRecipe):
    """The float network of the same shape, without any sign: a teacher, not something to deploy."""

    rule: Literal["real"]


def rule_fields(rule: Rule) -> dict[str, Any]:
    """Return the fields that a recipe may set and no schedule drives, with their defaults."""
    return {
        name: value
        for name, value in rule.defaults.items()
        if name not in rule.scheduled and name not in RUNTIME_FIELDS
    }


def _field(name: str, default: Any) -> tuple[Any, Any]:
    if name in CHOICES:
        return Literal[CHOICES[name]], default
    return type(default), default


def _model(rule: Rule) -> type[OptimizerRecipe]:
    fields: dict[str, Any] = {"rule": (Literal[rule.name], ...)}
    fields |= dict.fromkeys(rule.scheduled, (Scheduled, ...))
    fields |= {name: _field(name, default) for name, default in rule_fields(rule).items()}
    title = f"{type(rule).__name__.removesuffix('Rule')}Recipe"
    return cast(
        type[OptimizerRecipe], create_model(title, __base__=OptimizerRecipe, __doc__=type(rule).__doc__, **fields)
    )


OPTIMIZERS: dict[str, type[OptimizerRecipe]] = {
    **{name: _model(rule) for name, rule in RULES.items() if rule.binary},
    "latent": LatentRecipe,
    "real": RealRecipe,
}
_union: Any = None
for _kind in OPTIMIZERS.values():
    _union = _kind if _union is None else _union | _kind
AnyOptimizer: TypeAlias = Annotated[_union, Field(discriminator="rule")]
