"""Properties that any run of the binary rules must have (facts, section 7: 2 to 5, 12 and 13)."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bitedge.train.nn.parameter import BinaryParameter
from bitedge.train.optim import Bop, Bop2ndOrder, noise_flip_ratio

MODES = ["biased", "unbiased", "adam"]


def signs(count: int, seed: int) -> Tensor:
    return torch.where(torch.rand(count, generator=torch.Generator().manual_seed(seed)) < 0.5, -1.0, 1.0)


def gradients(steps: int, count: int, seed: int, drift: float = 0.2) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(steps, count, generator=generator) + drift * torch.randn(count, generator=generator)


def trajectory(optimizer_class: type[Any], start: Tensor, grads: Tensor, **options: Any) -> Tensor:
    """The weights after every step, one row each."""
    weight = BinaryParameter(start.clone())
    optimizer = optimizer_class([weight], **options)
    rows = []
    for grad in grads:
        weight.grad = grad.clone()
        optimizer.step()
        rows.append(weight.detach().clone())
    return torch.stack(rows)


@settings(max_examples=60, deadline=None)
@given(
    rule=st.sampled_from(["bop", *MODES]),
    gamma=st.floats(1e-9, 1.0),
    sigma=st.floats(1e-9, 1.0),
    tau=st.floats(0.0, 10.0),
    scale=st.floats(1e-12, 1e12),
    seed=st.integers(0, 1000),
)
def test_weights_stay_exactly_one(rule: str, gamma: float, sigma: float, tau: float, scale: float, seed: int) -> None:
    grads = gradients(5, 257, seed) * scale
    grads[1, :50] = 0.0
    if rule == "bop":
        rows = trajectory(Bop, signs(257, seed), grads, gamma=gamma, tau=tau)
    else:
        rows = trajectory(Bop2ndOrder, signs(257, seed), grads, gamma=gamma, sigma=sigma, tau=tau, eps=0.0, mode=rule)
    assert bool((rows.abs() == 1).all())


def test_not_a_number_flips_nothing() -> None:
    start = signs(64, 0)
    grads = torch.full((3, 64), float("nan"))
    assert torch.equal(trajectory(Bop, start, grads)[-1], start)
    assert torch.equal(trajectory(Bop2ndOrder, start, grads)[-1], start)


def test_unbiased_is_biased_with_a_rescaled_threshold() -> None:
    # powers of four, so that dividing by gamma and by the root of sigma is exact
    gamma, sigma, tau = 4.0**-5, 4.0**-3, 0.75
    start, grads = signs(4000, 1), gradients(150, 4000, 2)
    unbiased = trajectory(Bop2ndOrder, start, grads, gamma=gamma, sigma=sigma, tau=tau, eps=0.0, mode="unbiased")
    equivalent = tau * gamma / math.sqrt(sigma)
    biased = trajectory(Bop2ndOrder, start, grads, gamma=gamma, sigma=sigma, tau=equivalent, eps=0.0, mode="biased")
    assert torch.equal(unbiased, biased)
    other = trajectory(Bop2ndOrder, start, grads, gamma=gamma, sigma=sigma, tau=tau, eps=0.0, mode="biased")
    assert not torch.equal(unbiased, other)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("power", [-20, 20])
def test_scaled_loss_leaves_second_order_flips(mode: str, power: int) -> None:
    start, grads = signs(3000, 3), gradients(80, 3000, 4)
    tau = 0.5 if mode == "unbiased" else 0.05
    options = {"gamma": 1e-2, "sigma": 1e-2, "tau": tau, "eps": 0.0, "mode": mode}
    plain = trajectory(Bop2ndOrder, start, grads, **options)
    assert torch.equal(plain, trajectory(Bop2ndOrder, start, grads * 2.0**power, **options))
    assert not torch.equal(plain[-1], start)


def test_scaled_loss_changes_bop() -> None:
    start, grads = signs(3000, 3), gradients(80, 3000, 4)
    plain = trajectory(Bop, start, grads, gamma=1e-2, tau=0.05)
    assert not torch.equal(plain, trajectory(Bop, start, grads * 2.0**4, gamma=1e-2, tau=0.05))


@pytest.mark.parametrize("optimizer_class", [Bop, Bop2ndOrder])
def test_maximize_is_descent_on_negated_gradients(optimizer_class: type[Any]) -> None:
    start, grads = signs(2000, 5), gradients(60, 2000, 6)
    climbed = trajectory(optimizer_class, start, grads, gamma=1e-2, tau=1e-2, maximize=True)
    assert torch.equal(climbed, trajectory(optimizer_class, start, -grads, gamma=1e-2, tau=1e-2))
    assert not torch.equal(climbed, trajectory(optimizer_class, start, grads, gamma=1e-2, tau=1e-2))


@pytest.mark.parametrize(
    ("mode", "tau", "share"),
    [("biased", 0.009, 0.5), ("biased", 0.011, 0.0), ("unbiased", 0.99, 0.5), ("unbiased", 1.01, 0.0)],
)
def test_first_step_flips_half_or_nothing(mode: str, tau: float, share: float) -> None:
    gamma, sigma = 1e-3, 1e-2  # |s| is gamma / sqrt(sigma) = 0.01 in mode biased, and 1 in mode unbiased
    start, grads = signs(20_000, 7), gradients(1, 20_000, 8)
    after = trajectory(Bop2ndOrder, start, grads, gamma=gamma, sigma=sigma, tau=tau, mode=mode)[0]
    assert float((after != start).float().mean()) == pytest.approx(share, abs=0.015)
    if share:
        assert torch.equal(after, -grads[0].sign())


@pytest.mark.parametrize("gamma", [1e-2, 1e-1])
def test_noise_flips_as_often_as_the_arccosine_says(gamma: float) -> None:
    steps, settle, count = 160 + round(4 / gamma), round(4 / gamma), 4000
    grads = gradients(steps, count, 9, drift=0.0)
    rows = trajectory(Bop2ndOrder, signs(count, 10), grads, gamma=gamma, sigma=gamma, tau=0.0)[settle:]
    measured = float((rows[1:] != rows[:-1]).float().mean())
    assert measured == pytest.approx(noise_flip_ratio(gamma), rel=0.03)


def test_warm_start_keeps_trained_weights() -> None:
    start, grads = signs(2000, 11), gradients(1, 2000, 12)
    cold = trajectory(Bop, start, grads, gamma=1e-2, tau=0.0)[0]
    warm = trajectory(Bop, start, grads, gamma=1e-2, tau=0.0, warm_start=1.0)[0]
    assert float((cold != start).float().mean()) > 0.4
    assert torch.equal(warm, start)


def test_warm_start_sets_the_average_against_the_weight() -> None:
    weight = BinaryParameter(torch.tensor([1.0, -1.0]))
    optimizer = Bop2ndOrder([weight], gamma=0.5, warm_start=0.25, mode="adam")
    weight.grad = torch.zeros(2)
    optimizer.step()
    assert optimizer.state[weight]["exp_avg"].tolist() == [-0.125, 0.125]
    assert optimizer.state[weight]["seen"].item() == 1.0  # a warm average is not biased towards zero


def test_noise_threshold_holds_noise() -> None:
    gamma, count = 1e-2, 3000
    grads = gradients(500, count, 13, drift=0.0)
    options = {"gamma": gamma, "sigma": gamma, "threshold": "noise"}
    free = trajectory(Bop2ndOrder, signs(count, 14), grads, tau=0.0, **options)[200:]
    held = trajectory(Bop2ndOrder, signs(count, 14), grads, tau=2.0, **options)[200:]
    rates = [float((rows[1:] != rows[:-1]).float().mean()) for rows in (free, held)]
    assert rates[1] < rates[0] / 10
