"""Change the binary rule in the middle of a run, the averages carried over.

The paper suggests it (section 6): Bop2ndOrder first, because it is fast, then Bop, because it overfits less.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch.optim import Optimizer

from bitedge.train.errors import TrainError

from .hyper import check_value
from .registry import RULES, find_rule
from .rule import Group
from .schedule import Schedule, as_schedule


@dataclass(frozen=True)
class Switch:
    """From step `at` on, all binary groups follow `rule`.

    `fields` are numbers or schedules for the time after the switch, counted from there and spread over the rest
    of the run. tau is among them, since its unit changes with the rule; a field that is absent goes on as before.
    """

    at: int
    rule: str
    fields: Mapping[str, float | Schedule] = field(default_factory=dict)

    @property
    def schedules(self) -> dict[str, Schedule]:
        """The fields as schedules."""
        return {name: as_schedule(spec) for name, spec in self.fields.items()}

    def check(self, optimizer: Optimizer, total_steps: int) -> None:
        """Refuse a switch that could not happen, or that would leave tau in the wrong unit."""
        rule = find_rule(self.rule)
        if not rule.binary:
            raise TrainError(f"a switch goes to a binary rule, got {self.rule!r}")
        if self.at < 1:
            raise TrainError(f"a switch happens at step 1 or later, got {self.at}")
        if "tau" not in self.fields:
            raise TrainError(f"a switch to {self.rule!r} needs its own tau: the unit of the threshold changes")
        if not any(is_binary_group(group) for group in optimizer.param_groups):
            raise TrainError("a switch needs a ModelOptimizer with binary parameters")
        for name, schedule in self.schedules.items():
            if name not in rule.scheduled:
                raise TrainError(f"rule {self.rule!r} has no field {name!r}: it reads {', '.join(rule.scheduled)}")
            for value in schedule.ends(max(1, total_steps - self.at)):
                check_value(name, value, context="switch")


def is_binary_group(group: Group) -> bool:
    """Whether a group names a binary rule."""
    return group.get("rule") in RULES and RULES[group["rule"]].binary


def switch_rule(optimizer: Optimizer, group: Group, name: str) -> None:
    """Give a binary group another rule: the gradient average stays, what the new rule does not use is freed."""
    if group.get("rule") == name or not is_binary_group(group):
        return
    rule = find_rule(name)
    group["rule"] = name
    rule.prepare(group)
    for parameter in group["params"]:
        state = optimizer.state.get(parameter, {})
        for key in [key for key in state if key not in rule.slots]:
            del state[key]
