"""Drive the hyper-parameters of an optimizer, step by step."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor
from torch.optim import Optimizer

from bitedge.train.errors import TrainError

from .hyper import check_value
from .registry import rule_of
from .rule import Group
from .schedule import Schedule, as_schedule
from .switch import Switch, switch_rule


class Schedules:
    """Set gamma, sigma, tau and lr of an optimizer before each step, as functions of the step number alone.

    Construction sets the values of step 0, which the first step uses; call `step()` after every optimizer step. Only
    groups whose rule reads a field are touched, tensor fields (`capturable`) are filled in place.

    Example:
        >>> from torch import nn, ones
        >>> from bitedge.train.optim import Bop, Polynomial
        >>> optimizer = Bop([nn.Parameter(ones(3))])
        >>> schedules = Schedules(optimizer, {"gamma": Polynomial(1e-2, 1e-4), "tau": 1e-8}, total_steps=100)
        >>> for _ in range(50):
        ...     optimizer.step()
        ...     schedules.step()
        >>> round(optimizer.param_groups[0]["gamma"], 6)
        0.00505

    Args:
        optimizer: `ModelOptimizer`, `Bop`, `Bop2ndOrder`, or one of torch's for lr.
        fields: field name to schedule or number.
        total_steps: length of the run; schedules hold their last value afterwards.
        switch: another binary rule from a given step on, see `Switch`; needs `ModelOptimizer`.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        fields: Mapping[str, float | Schedule],
        total_steps: int,
        *,
        switch: Switch | None = None,
    ) -> None:
        if total_steps < 1:
            raise TrainError(f"total_steps must be at least 1, got {total_steps}")
        self.optimizer = optimizer
        self.total_steps = total_steps
        self.fields = {name: as_schedule(spec) for name, spec in fields.items()}
        self.switch = switch
        for name, schedule in self.fields.items():
            for value in schedule.ends(total_steps):
                check_value(name, value, context="schedule")
            if not any(reads(optimizer, group, name) for group in optimizer.param_groups):
                raise TrainError(f"no parameter group has a field {name!r} to schedule: {describe(optimizer)}")
        if switch is not None:
            switch.check(optimizer, total_steps)
            self.first_rules = [group.get("rule", "") for group in optimizer.param_groups]
        self.set(0)

    def set(self, step: int) -> None:
        """Put the optimizer into the state that belongs to a step, whatever came before."""
        self.current = step
        values = self.values(step)
        if self.switch is not None:
            for group, first in zip(self.optimizer.param_groups, self.first_rules, strict=True):
                switch_rule(self.optimizer, group, self.switch.rule if step >= self.switch.at else first)
        for name, value in values.items():
            for group in self.optimizer.param_groups:
                if reads(self.optimizer, group, name):
                    assign(group, name, value)

    def step(self) -> None:
        """Go to the next step."""
        self.set(self.current + 1)

    def values(self, step: int) -> dict[str, float]:
        """The value of every scheduled field at a step."""
        values = {name: schedule.value(step, self.total_steps) for name, schedule in self.fields.items()}
        if self.switch is not None and step >= self.switch.at:
            start, length = self.switch.at, max(1, self.total_steps - self.switch.at)
            values |= {name: schedule.value(step - start, length) for name, schedule in self.switch.schedules.items()}
        return values

    def state_dict(self) -> dict[str, int]:
        """The position; everything else is given by the constructor."""
        return {"step": self.current}

    def load_state_dict(self, state_dict: Mapping[str, int]) -> None:
        """Return to a saved position. Load the optimizer first."""
        self.set(state_dict["step"])


def reads(optimizer: Optimizer, group: Group, name: str) -> bool:
    """Whether the rule of a group uses a field; the dummy lr of binary rules does not count."""
    rule = rule_of(optimizer, group)
    return name in rule.scheduled if rule is not None else name in group


def assign(group: Group, name: str, value: float) -> None:
    """Write a field, in place when it is a tensor."""
    if isinstance(group[name], Tensor):
        group[name].fill_(value)
    else:
        group[name] = value


def describe(optimizer: Optimizer) -> str:
    """The fields that the groups of an optimizer do have."""
    rules = {rule.name: rule.scheduled for group in optimizer.param_groups if (rule := rule_of(optimizer, group))}
    return "; ".join(f"rule {name!r} reads {', '.join(fields)}" for name, fields in rules.items()) or "no rule is known"
