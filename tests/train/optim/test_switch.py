"""From Bop2ndOrder to Bop in the middle of a run."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bitedge.train.errors import TrainError
from bitedge.train.nn.parameter import BinaryParameter
from bitedge.train.optim import Bop, Bop2ndOrder, Exponential, ModelOptimizer, Polynomial, Schedule, Schedules, Switch

STEPS, AT = 40, 25
GRADS = torch.randn(STEPS, 500, generator=torch.Generator().manual_seed(0))
GRADS += 0.3 * torch.randn(500, generator=torch.Generator().manual_seed(1))
SECOND: dict[str, float | Schedule] = {"gamma": Polynomial(5e-2, 1e-2), "sigma": 1e-2, "tau": 0.05}
SWITCH = Switch(AT, "bop", {"gamma": 2e-2, "tau": Exponential(1e-2, 2.0, every=5)})


class Run:
    """A weight, its optimizer with schedules and switch, and the gradients to come."""

    def __init__(self) -> None:
        self.weight = BinaryParameter(torch.ones(500))
        self.bias = nn.Parameter(torch.zeros(3))
        self.optimizer = ModelOptimizer([("w", self.weight), ("b", self.bias)], rule="bop2nd")
        self.schedules = Schedules(self.optimizer, SECOND, STEPS, switch=SWITCH)

    def steps(self, first: int, last: int) -> None:
        for grad in GRADS[first:last]:
            self.weight.grad, self.bias.grad = grad.clone(), torch.ones(3)
            self.optimizer.step()
            self.schedules.step()


def by_hand() -> Tensor:
    """The same run as two optimizers, the average handed over."""
    weight = BinaryParameter(torch.ones(500))
    first = Bop2ndOrder([weight])
    schedules = Schedules(first, SECOND, STEPS)
    for grad in GRADS[:AT]:
        weight.grad = grad.clone()
        first.step()
        schedules.step()
    second = Bop([weight], gamma=2e-2)
    second.state[weight]["exp_avg"] = first.state[weight]["exp_avg"]
    for step, grad in enumerate(GRADS[AT:]):
        second.param_groups[0]["tau"] = 1e-2 * 2.0 ** (step // 5)
        weight.grad = grad.clone()
        second.step()
    return weight.detach()


def test_equals_two_optimizers_with_the_average_carried_over() -> None:
    run = Run()
    run.steps(0, STEPS)
    assert run.optimizer.param_groups[0]["rule"] == "bop"
    assert run.optimizer.param_groups[1]["rule"] == "adam"
    assert torch.equal(run.weight, by_hand())


def test_happens_before_its_step_and_frees_what_is_not_used() -> None:
    run = Run()
    run.steps(0, AT - 1)
    assert run.optimizer.param_groups[0]["rule"] == "bop2nd"
    assert "exp_avg_sq" in run.optimizer.state[run.weight]
    run.steps(AT - 1, AT)
    group = run.optimizer.param_groups[0]
    assert (group["rule"], group["gamma"], group["tau"]) == ("bop", 2e-2, 1e-2)
    assert set(run.optimizer.state[run.weight]) == {"exp_avg"}
    assert "exp_avg_sq" in run.optimizer.state[run.bias]


@pytest.mark.parametrize("stop", [10, AT, 30])
def test_resume_on_either_side_equals_uninterrupted(stop: int) -> None:
    whole, first, second = Run(), Run(), Run()
    whole.steps(0, STEPS)
    first.steps(0, stop)
    with torch.no_grad():
        second.weight.copy_(first.weight)
        second.bias.copy_(first.bias)
    second.optimizer.load_state_dict(copy.deepcopy(first.optimizer.state_dict()))
    second.schedules.load_state_dict(first.schedules.state_dict())
    second.steps(stop, STEPS)
    assert torch.equal(whole.weight, second.weight)
    assert torch.equal(whole.bias, second.bias)


def test_going_back_restores_the_first_rule() -> None:
    run = Run()
    run.schedules.set(AT + 3)
    run.schedules.set(0)
    assert run.optimizer.param_groups[0]["rule"] == "bop2nd"
    run.steps(0, 2)


@pytest.mark.parametrize(
    ("switch", "message"),
    [
        (Switch(5, "adam", {"tau": 1.0}), "goes to a binary rule, got 'adam'"),
        (Switch(0, "bop", {"tau": 1.0}), "at step 1 or later, got 0"),
        (Switch(5, "bop"), "needs its own tau"),
        (Switch(5, "bop", {"tau": 1.0, "sigma": 1e-3}), "rule 'bop' has no field 'sigma'"),
        (Switch(5, "bop", {"tau": -1.0}), "switch: tau must lie in"),
        (Switch(5, "bopp", {"tau": 1.0}), "unknown update rule 'bopp'"),
    ],
)
def test_impossible_switches_are_refused(switch: Switch, message: str) -> None:
    optimizer = ModelOptimizer([BinaryParameter(torch.ones(2))])
    with pytest.raises(TrainError, match=message):
        Schedules(optimizer, {"tau": 0.1}, 10, switch=switch)


def test_needs_an_optimizer_with_rules() -> None:
    optimizer: Any = Bop([BinaryParameter(torch.ones(2))])
    with pytest.raises(TrainError, match="needs a ModelOptimizer with binary parameters"):
        Schedules(optimizer, {"tau": 0.1}, 10, switch=Switch(5, "bop2nd", {"tau": 1.0}))
