"""The threshold "noise" follows the noise that the averages hold, for any schedule of gamma."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from bitedge.train.nn.parameter import BinaryParameter
from bitedge.train.optim import Bop2ndOrder, OptimizerWarning, Polynomial, Schedules, Telemetry

STEPS, WEIGHTS = 400, 20_000


def run(mode: Any, gammas: Polynomial, *, tau: float, threshold: Any = "noise") -> tuple[Bop2ndOrder, list[float]]:
    """Feed noise to an optimizer whose gamma follows a schedule; returns it and the share of flips at each step."""
    weight = BinaryParameter(torch.ones(WEIGHTS))
    optimizer = Bop2ndOrder([weight], sigma=1e-2, tau=tau, mode=mode, threshold=threshold)
    schedules = Schedules(optimizer, {"gamma": gammas}, STEPS)
    generator = torch.Generator().manual_seed(5)
    flips = []
    for _ in range(STEPS):
        before = weight.detach().clone()
        weight.grad = torch.randn(WEIGHTS, generator=generator)
        optimizer.step()
        flips.append(float((weight != before).float().mean()))
        last = optimizer.param_groups[0]["gamma"]
        schedules.step()
    optimizer.param_groups[0]["gamma"] = last
    return optimizer, flips


@pytest.mark.parametrize("mode", ["biased", "unbiased", "adam"])
@pytest.mark.parametrize("end", [0.0, 5e-2])
def test_deviation_is_that_of_s_under_noise(mode: str, end: float) -> None:
    optimizer, _ = run(mode, Polynomial(5e-2, end), tau=1.0)
    group = optimizer.param_groups[0]
    (state,) = optimizer.state.values()
    measured = float(optimizer.rule.signal(state, group).std())
    assert float(optimizer.rule.deviation(group, state)) == pytest.approx(measured, rel=0.03)


@pytest.mark.parametrize("mode", ["biased", "unbiased", "adam"])
def test_variance_follows_the_recurrence(mode: str) -> None:
    optimizer, _ = run(mode, Polynomial(5e-2, 0.0), tau=1.0)
    (state,) = optimizer.state.values()
    noise = 0.0 if mode == "adam" else 5e-2 / (2 - 5e-2)
    for step in range(STEPS):
        gamma = 5e-2 * (1 - step / STEPS)
        noise = (1 - gamma) ** 2 * noise + gamma**2
    assert state["noise"].item() == pytest.approx(noise, rel=1e-9)


def test_constant_gamma_keeps_the_unit() -> None:
    optimizer, _ = run("biased", Polynomial(1e-2, 1e-2), tau=3.0)
    (state,) = optimizer.state.values()
    assert optimizer.rule.tau(optimizer.param_groups[0], state) == pytest.approx(3 * math.sqrt(1e-2 / (2 - 1e-2)))


def test_flips_end_with_gamma() -> None:
    """A threshold of sqrt(gamma / 2), without memory, lets almost every held weight go in the last steps."""
    _, flips = run("biased", Polynomial(5e-2, 0.0), tau=2.0)
    assert np.mean(flips[100:200]) > 1e-4
    assert np.mean(flips[-40:]) < np.mean(flips[100:200]) / 5
    assert flips[-1] == 0.0


def watch(**fields: Any) -> None:
    """Let gamma fall to 0 over noise, watched by the telemetry."""
    weight = BinaryParameter(torch.ones(2000))
    optimizer = Bop2ndOrder([weight], sigma=1e-2, **fields)
    schedules = Schedules(optimizer, {"gamma": Polynomial(5e-2, 0.0)}, 200)
    Telemetry(optimizer, every=10, patience=2)
    generator = torch.Generator().manual_seed(6)
    for _ in range(200):
        weight.grad = torch.randn(2000, generator=generator)
        optimizer.step()
        schedules.step()


def test_telemetry_warns_of_free_noise() -> None:
    with pytest.warns(OptimizerWarning, match="below the noise that the gradient averages still hold.*use threshold"):
        watch(tau=0.1)


@pytest.mark.filterwarnings("error")
def test_telemetry_is_quiet_about_a_tracked_threshold() -> None:
    watch(tau=0.5, threshold="noise")
