"""The one table of update rules: parameter groups, recipes, telemetry and tests all read it."""

from __future__ import annotations

from collections.abc import Mapping

from torch.optim import Optimizer

from bitedge.train.errors import TrainError

from .adam import AdamRule, LatentRule
from .bop import BopRule
from .bop2nd import Bop2ndRule
from .cascade import CascadeRule
from .cema import CemaRule
from .diode import DiodeRule
from .rule import Group, Rule
from .sgd import LatentSgdRule, SgdRule

RULES: Mapping[str, Rule] = {
    rule.name: rule
    for rule in (
        BopRule(),
        Bop2ndRule(),
        CascadeRule(),
        CemaRule(),
        DiodeRule(),
        AdamRule(),
        LatentRule(),
        SgdRule(),
        LatentSgdRule(),
    )
}


def find_rule(name: str) -> Rule:
    """The rule of a name, or an error that lists the names."""
    if name not in RULES:
        raise TrainError(f"unknown update rule {name!r}: choose one of {', '.join(RULES)}")
    return RULES[name]


def rule_of(optimizer: Optimizer, group: Group) -> Rule | None:
    """The rule that an optimizer of this package applies to a group; None for other optimizers."""
    if "rule" in group:
        return find_rule(group["rule"])
    rule = getattr(optimizer, "rule", None)
    return rule if isinstance(rule, Rule) else None
