"""Every rule, in every optimizer that offers it, behaves like one of torch's own."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bitedge.train.errors import TrainError
from bitedge.train.nn.parameter import BinaryParameter, is_binary
from bitedge.train.optim import RULES, Bop, Bop2ndOrder, CascadedBop2nd, Cema, Diode, ModelOptimizer

Make = Callable[[list[Tensor]], Optimizer]
FIELDS: dict[str, dict[str, Any]] = {
    "bop": {"gamma": 0.05, "tau": 1e-3},
    "bop2nd": {"gamma": 0.05, "sigma": 0.05, "tau": 0.05},
    "cema": {"gamma": 0.3, "sigma": 0.1, "tau": 1e-3},
    "cascade": {"gamma": 0.3, "sigma": 0.1, "alpha": 0.1},
    "diode": {"gamma": 0.3, "alpha": 0.1},
    "adam": {"lr": 0.05},
    "latent": {"lr": 0.05},
    "sgd": {"lr": 0.005},
    "latent_sgd": {"lr": 0.005},
}
BINARY = [name for name, rule in RULES.items() if rule.binary]


def grouped(params: list[Tensor], rule: str) -> ModelOptimizer:
    """A `ModelOptimizer` with one group, of one rule."""
    return ModelOptimizer([{"params": params, "rule": rule, **FIELDS[rule]}])


CLASSES: dict[str, Make] = {
    "Bop": partial(Bop, **FIELDS["bop"]),
    **{
        f"Bop2ndOrder-{mode}": partial(Bop2ndOrder, **FIELDS["bop2nd"], mode=mode)
        for mode in ("biased", "unbiased", "adam")
    },
    **{f"rule-{name}": partial(grouped, rule=name) for name in RULES},
}


class Regression:
    """Recover hidden signs from a linear map of them: the smallest problem that binary weights can solve."""

    def __init__(self, make: Make, binary: bool, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.inputs = torch.randn(256, 24, generator=generator)
        hidden = torch.where(torch.rand(24, generator=generator) < 0.5, -1.0, 1.0)
        self.targets = self.inputs @ hidden
        start = torch.where(torch.rand(24, generator=generator) < 0.5, -1.0, 1.0)
        self.weight = BinaryParameter(start) if binary else nn.Parameter(0.1 * start)
        self.optimizer = make([self.weight])

    def loss(self) -> Tensor:
        return (self.inputs @ self.weight - self.targets).square().mean()

    def step(self) -> float:
        self.optimizer.zero_grad()
        loss = self.loss()
        torch.autograd.backward(loss)
        self.optimizer.step()
        return float(loss.detach())


def is_binary_case(name: str) -> bool:
    return not name.startswith("rule-") or name.removeprefix("rule-") in BINARY


@pytest.fixture(params=CLASSES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def problem(name: str) -> Regression:
    return Regression(CLASSES[name], is_binary_case(name))


def test_every_rule_is_tested() -> None:
    assert set(FIELDS) == set(RULES)


def test_loss_falls(problem: Regression) -> None:
    first = problem.step()
    for _ in range(150):
        last = problem.step()
    assert last < 0.2 * first


def test_resume_equals_uninterrupted(name: str) -> None:
    whole = Regression(CLASSES[name], is_binary_case(name))
    first = Regression(CLASSES[name], is_binary_case(name))
    for _ in range(12):
        whole.step()
        first.step()
    file = io.BytesIO()
    torch.save({"weight": first.weight.detach(), "optimizer": first.optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    second = Regression(CLASSES[name], is_binary_case(name))
    with torch.no_grad():
        second.weight.copy_(saved["weight"])
    second.optimizer.load_state_dict(saved["optimizer"])
    for _ in range(12):
        whole.step()
        second.step()
    assert torch.equal(whole.weight, second.weight)
    ours, theirs = whole.optimizer.state[whole.weight], second.optimizer.state[second.weight]
    assert ours.keys() == theirs.keys()
    for key in ours:
        assert ours[key].dtype == theirs[key].dtype
        assert torch.equal(ours[key], theirs[key])


def test_state_is_not_shared_with_the_dictionary(problem: Regression) -> None:
    problem.step()
    saved = copy.deepcopy(problem.optimizer.state_dict())
    problem.optimizer.load_state_dict(saved)
    slot = "exp_avg" if "exp_avg" in saved["state"][0] else "momentum_buffer"
    before = saved["state"][0][slot].clone()
    problem.step()
    assert torch.equal(saved["state"][0][slot], before)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_copies_go_on_alike(problem: Regression, duplicate: Callable[[Any], Any]) -> None:
    for _ in range(5):
        problem.step()
    other: Regression = duplicate(problem)
    for _ in range(5):
        problem.step()
        other.step()
    assert other.weight is not problem.weight
    assert torch.equal(other.weight, problem.weight)
    assert is_binary(other.weight) == is_binary(problem.weight)


def test_closure_gives_its_loss(problem: Regression) -> None:
    def closure() -> float:
        problem.optimizer.zero_grad()
        loss = problem.loss()
        torch.autograd.backward(loss)
        return float(loss.detach())

    expected = float(problem.loss().detach())
    assert problem.optimizer.step(closure) == pytest.approx(expected)


def test_parameters_without_gradient_are_skipped(name: str) -> None:
    kind = BinaryParameter if is_binary_case(name) else nn.Parameter
    used, unused = kind(torch.ones(3)), kind(torch.ones(3))
    optimizer = CLASSES[name]([used, unused])
    used.grad = torch.ones(3)
    optimizer.step()
    assert unused.tolist() == [1.0, 1.0, 1.0]
    assert unused not in optimizer.state or not optimizer.state[unused]


def test_sparse_gradients_are_refused(name: str) -> None:
    weight = (BinaryParameter if is_binary_case(name) else nn.Parameter)(torch.ones(3))
    optimizer = CLASSES[name]([weight])
    weight.grad = torch.ones(3).to_sparse()
    with pytest.raises(TrainError, match="dense gradients"):
        optimizer.step()


def test_old_states_get_defaults(problem: Regression) -> None:
    problem.step()
    saved = problem.optimizer.state_dict()
    for key in ("maximize", "foreach", "capturable"):
        del saved["param_groups"][0][key]
    problem.optimizer.load_state_dict(saved)
    assert problem.optimizer.param_groups[0]["maximize"] is False
    problem.step()


def test_repr_shows_the_fields(problem: Regression) -> None:
    assert "lr: " in repr(problem.optimizer)


def test_grad_scaler_unscales_first(problem: Regression) -> None:
    other = copy.deepcopy(problem)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for _ in range(10):
        problem.step()
        other.optimizer.zero_grad()
        torch.autograd.backward(scaler.scale(other.loss()))
        scaler.step(other.optimizer)
        scaler.update()
    assert torch.equal(problem.weight, other.weight)


@pytest.mark.parametrize("rule", RULES)
def test_torch_schedulers_find_their_key(rule: str) -> None:
    problem = Regression(lambda params: grouped(params, rule), RULES[rule].binary)
    scheduler = torch.optim.lr_scheduler.StepLR(problem.optimizer, step_size=1, gamma=0.5)
    start = problem.optimizer.param_groups[0]["lr"]
    problem.step()
    scheduler.step()
    assert problem.optimizer.param_groups[0]["lr"] == 0.5 * start
    problem.step()


@pytest.mark.parametrize("optimizer_class", [Bop, Bop2ndOrder])
def test_lr_of_a_binary_optimizer_warns(optimizer_class: type[Any]) -> None:
    weight = BinaryParameter(torch.ones(2))
    optimizer = optimizer_class([weight])
    optimizer.param_groups[0]["lr"] = 0.1
    with pytest.warns(UserWarning, match="lr has no effect.*schedule gamma"):
        optimizer.step()


def test_groups_have_fields_of_their_own() -> None:
    slow, fast = BinaryParameter(torch.ones(2)), BinaryParameter(torch.ones(2))
    groups: list[dict[str, Any]] = [{"params": [slow]}, {"params": [fast], "gamma": 1.0}]
    optimizer = Bop(groups, gamma=1e-3, tau=0.5)
    slow.grad, fast.grad = torch.ones(2), torch.ones(2)
    optimizer.step()
    assert slow.tolist() == [1.0, 1.0]
    assert fast.tolist() == [-1.0, -1.0]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"gamma": 1.5}, r"gamma must lie in \[0, 1\], got 1.5"),
        ({"sigma": -0.1}, r"sigma must lie in \[0, 1\], got -0.1"),
        ({"tau": -1e-3}, r"tau must lie in \[0, inf\), got -0.001"),
        ({"tau": float("nan")}, "tau must lie in .*, got nan"),
        ({"eps": -1.0}, r"eps must lie in \[0, inf\), got -1"),
        ({"mode": "centered"}, "mode must be one of biased, unbiased, adam, got 'centered'"),
        ({"threshold": "relative"}, "threshold must be one of absolute, noise, got 'relative'"),
        ({"warm_start": -1.0}, "warm_start must lie in"),
        ({"gamma": "fast"}, "gamma must be a number, got 'fast'"),
        ({"gamma": torch.ones(2)}, r"gamma must be a number or a one-element tensor, got shape \(2,\)"),
    ],
)
def test_values_out_of_range_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(TrainError, match=message):
        Bop2ndOrder([BinaryParameter(torch.ones(2))], **fields)


def test_unbiased_mode_refuses_a_rate_of_zero() -> None:
    weight = BinaryParameter(torch.ones(2))
    optimizer = Bop2ndOrder([weight], gamma=0.0, mode="unbiased")
    weight.grad = torch.ones(2)
    with pytest.raises(TrainError, match="divides by gamma and sigma, which must be above 0"):
        optimizer.step()


@pytest.mark.parametrize("optimizer_class", [Bop, Bop2ndOrder, CascadedBop2nd, Cema, Diode])
@pytest.mark.parametrize("value", [0.0, 0.3, float("nan")])
def test_weights_that_are_not_binary_are_refused(optimizer_class: type[Any], value: float) -> None:
    weight = BinaryParameter(torch.tensor([1.0, value]))
    optimizer = optimizer_class([weight])
    weight.grad = torch.ones(2)
    with pytest.raises(TrainError, match=r"exactly -1 or \+1, got (0|0.3|nan): binarize"):
        optimizer.step()
