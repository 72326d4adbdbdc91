"""Who claims which parameter, and what Adam does to the rest."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bitedge.train.errors import TrainError
from bitedge.train.nn import BinaryLinear
from bitedge.train.nn.parameter import BinaryParameter
from bitedge.train.optim import ModelOptimizer


class Small(nn.Module):
    """Binary, real and normalization parameters."""

    def __init__(self, latent: bool = False) -> None:
        super().__init__()
        self.hidden = BinaryLinear(8, 8, input_quantizer=None, latent=latent)
        self.norm = nn.BatchNorm1d(8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.head(self.norm(self.hidden(x)))
        return output


def layout(optimizer: ModelOptimizer) -> dict[str, list[str]]:
    return {group["rule"]: list(group["param_names"]) for group in optimizer.param_groups}


REAL = ["norm.weight", "norm.bias", "head.weight", "head.bias"]


@pytest.mark.parametrize("rule", ["bop", "bop2nd"])
def test_binary_parameters_get_the_rule_and_the_rest_adam(rule: str) -> None:
    torch.manual_seed(0)
    model = Small()
    assert layout(ModelOptimizer(model, rule=rule)) == {rule: ["hidden.weight"], "adam": REAL}
    assert layout(ModelOptimizer(model.named_parameters(), rule=rule)) == {rule: ["hidden.weight"], "adam": REAL}
    assert layout(ModelOptimizer(model.parameters(), rule=rule)) == {rule: ["0"], "adam": ["1", "2", "3", "4"]}


def test_the_mark_decides_and_not_the_name() -> None:
    named = [("binary_weight", nn.Parameter(torch.ones(2))), ("plain", BinaryParameter(torch.ones(2)))]
    assert layout(ModelOptimizer(named)) == {"bop2nd": ["plain"], "adam": ["binary_weight"]}


def test_frozen_parameters_are_left_alone() -> None:
    torch.manual_seed(0)
    model = Small()
    model.head.requires_grad_(False)
    assert layout(ModelOptimizer(model)) == {"bop2nd": ["hidden.weight"], "adam": REAL[:2]}


def test_real_parameters_move_exactly_as_with_torchs_adam() -> None:
    torch.manual_seed(0)
    ours, theirs = nn.Linear(5, 4), nn.Linear(5, 4)
    theirs.load_state_dict(ours.state_dict())
    first = ModelOptimizer(ours, lr=0.02, weight_decay=1e-3)
    groups: list[dict[str, Any]] = [{"params": [theirs.weight], "weight_decay": 1e-3}, {"params": [theirs.bias]}]
    second = torch.optim.Adam(groups, lr=0.02, eps=1e-7, fused=True)
    data = torch.randn(6, 5)
    for _ in range(20):
        for model, optimizer in ((ours, first), (theirs, second)):
            optimizer.zero_grad()
            torch.autograd.backward(model(data).square().mean())
            optimizer.step()
    assert torch.equal(ours.weight, theirs.weight)
    assert torch.equal(ours.bias, theirs.bias)


def test_decay_spares_norms_biases_and_binary_weights() -> None:
    torch.manual_seed(0)
    optimizer = ModelOptimizer(Small(), weight_decay=1e-6)
    decay = {name: g.get("weight_decay", 0.0) for g in optimizer.param_groups for name in g["param_names"]}
    assert decay == {**dict.fromkeys(["hidden.weight", *REAL], 0.0), "head.weight": 1e-6}


def test_latent_weights_are_clipped_and_others_are_not() -> None:
    torch.manual_seed(0)
    model = Small(latent=True)
    optimizer = ModelOptimizer(model, rule="latent", lr=0.4)
    assert layout(optimizer) == {"latent": ["hidden.weight"], "adam": REAL}
    for parameter in model.parameters():
        parameter.grad = -torch.ones_like(parameter)
    for _ in range(10):
        optimizer.step()
    assert bool((model.hidden.weight == 1).all())
    assert bool((model.head.bias > 1.5).all())


def test_clip_is_a_field() -> None:
    torch.manual_seed(0)
    model = Small(latent=True)
    optimizer = ModelOptimizer(model, lr=1.0, clip=1.25)
    model.hidden.weight.grad = torch.ones_like(model.hidden.weight)
    for _ in range(5):
        optimizer.step()
    assert bool((model.hidden.weight == -1.25).all())


@pytest.mark.parametrize(
    ("rule", "latent", "message"),
    [
        ("bop", True, "'bop' is for binary parameters, but none is declared binary"),
        ("latent", False, "no layer has any: build it with latent=True"),
        ("adam", False, "claims no binary parameter, but the model has some"),
        ("lion", False, "unknown update rule 'lion': choose one of bop, bop2nd, cascade, cema"),
    ],
)
def test_a_rule_that_does_not_fit_the_model_is_refused(rule: str, latent: bool, message: str) -> None:
    with pytest.raises(TrainError, match=message):
        ModelOptimizer(Small(latent), rule=rule)


def test_a_field_that_the_rule_lacks_is_refused() -> None:
    with pytest.raises(TrainError, match="rule 'bop' has no field sigma: it takes gamma, tau"):
        ModelOptimizer(Small(), rule="bop", sigma=1e-3)
    with pytest.raises(TrainError, match="fields gamma belong to rule 'latent', which"):
        ModelOptimizer(Small(latent=True).head, rule=None, latent=[torch.ones(1)], gamma=1e-3)


def test_a_parameter_claimed_twice_is_refused() -> None:
    weight = BinaryParameter(torch.ones(2))
    with pytest.raises(TrainError, match="parameter 'again' is claimed twice, by 'bop' as 'first' and 'bop2nd'"):
        ModelOptimizer(
            [{"params": [("first", weight)], "rule": "bop"}, {"params": [("again", weight)], "rule": "bop2nd"}]
        )
    with pytest.raises(TrainError, match="claimed twice"):
        ModelOptimizer([weight, weight])


def test_a_parameter_claimed_by_none_is_refused() -> None:
    model = Small()
    with pytest.raises(TrainError, match=r"no group claims norm.weight, norm.bias, head.weight, head.bias"):
        ModelOptimizer([{"params": [("w", model.hidden.weight)], "rule": "bop"}], model=model)


def test_a_group_of_the_wrong_kind_is_refused() -> None:
    with pytest.raises(TrainError, match="binary parameter 'w' is claimed by rule 'adam'"):
        ModelOptimizer([{"params": [("w", BinaryParameter(torch.ones(1)))], "rule": "adam"}])
    with pytest.raises(TrainError, match="parameter 'w' is claimed by the binary rule 'bop' but is not"):
        ModelOptimizer([{"params": [("w", nn.Parameter(torch.ones(1)))], "rule": "bop"}])


def test_malformed_groups_are_refused() -> None:
    weight = BinaryParameter(torch.ones(1))
    with pytest.raises(TrainError, match="a group needs 'params' and 'rule', got params"):
        ModelOptimizer([{"params": [weight]}])
    with pytest.raises(TrainError, match="give the rule and its fields in each group"):
        ModelOptimizer([{"params": [weight], "rule": "bop"}], gamma=1e-3)
    with pytest.raises(TrainError, match=r"expected parameters or \(name, parameter\) pairs, got str"):
        ModelOptimizer(["weight"])  # type: ignore[arg-type]


def test_explicit_groups_mix_rules() -> None:
    torch.manual_seed(0)
    model = Small()
    other = BinaryParameter(torch.ones(3))
    groups: list[dict[str, Any]] = [
        {"params": [("hidden", model.hidden.weight)], "rule": "bop2nd", "mode": "unbiased"},
        {"params": [("other", other)], "rule": "bop", "gamma": 0.5, "tau": 0.0},
        {"params": model.head.named_parameters(), "rule": "adam"},
    ]
    optimizer = ModelOptimizer(groups, lr=0.3)
    other.grad = torch.tensor([1.0, -1.0, 1.0])
    model.head.bias.grad = torch.ones(3)
    before = model.head.bias.detach().clone()
    optimizer.step()
    assert other.tolist() == [-1.0, 1.0, -1.0]
    assert torch.allclose(model.head.bias, before - 0.3)
    assert optimizer.param_groups[0]["mode"] == "unbiased"


def test_groups_can_be_added_later() -> None:
    optimizer = ModelOptimizer([BinaryParameter(torch.ones(2))], rule="bop")
    optimizer.add_param_group({"params": [("late", nn.Parameter(torch.ones(2)))], "rule": "adam", "lr": 0.1})
    assert [group["rule"] for group in optimizer.param_groups] == ["bop", "adam"]
    assert optimizer.param_groups[1]["eps"] == 1e-7


@pytest.mark.parametrize("options", [{"capturable": True}, {"foreach": True}, {"compiled": False, "foreach": False}])
def test_options_change_the_way_and_not_the_result(options: dict[str, Any]) -> None:
    results = []
    for chosen in ({}, options):
        torch.manual_seed(0)
        model, data = Small(), torch.randn(16, 8)
        optimizer = ModelOptimizer(model, rule="bop2nd", gamma=0.1, sigma=0.1, tau=0.1, lr=0.01, **chosen)
        for _ in range(5):
            optimizer.zero_grad()
            torch.autograd.backward(model(data).square().mean())
            optimizer.step()
        results.append(model.state_dict())
    assert torch.equal(results[0]["hidden.weight"], results[1]["hidden.weight"])
    for name in results[0]:
        torch.testing.assert_close(results[0][name], results[1][name])


def test_two_ways_to_run_a_step_are_refused() -> None:
    with pytest.raises(TrainError, match="foreach and compiled are two ways"):
        ModelOptimizer(Small(), foreach=True, compiled=True)


def test_nesterov_and_faster_biases_are_torchs_sgd() -> None:
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))
    theirs = copy.deepcopy(ours)
    optimizer = ModelOptimizer(
        ours, method="sgd", lr=0.1, momentum=0.85, nesterov=True, bias_factor=8.0, weight_decay=0.01
    )
    small = [p for p in theirs.parameters() if p.dim() < 2]
    large = [p for p in theirs.parameters() if p.dim() >= 2]
    groups = [{"params": large, "weight_decay": 0.01}, {"params": small, "lr": 0.8}]
    reference = torch.optim.SGD(groups, lr=0.1, momentum=0.85, nesterov=True)
    for _ in range(4):
        x = torch.randn(6, 4)
        for module, stepped in ((ours, optimizer), (theirs, reference)):
            stepped.zero_grad()
            module(x).square().sum().backward()
            stepped.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    with pytest.raises(TrainError, match="belong to method 'sgd'"):
        ModelOptimizer(ours, method="adam", nesterov=True)
