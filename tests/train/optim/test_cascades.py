"""The rules of two averages in a row against an independent numpy transcription, bit for bit; their rates end at 0."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from bitedge.train.nn.parameter import BinaryParameter
from bitedge.train.optim import CascadedBop2nd, Cema, Diode, Polynomial, Schedules, noise_flip_ratio

Floats = npt.NDArray[np.float32]
STEPS, WEIGHTS = 200, 20_000
F = np.float32


def falling(start: float, step: int) -> float:
    """A straight line to 0, by hand."""
    return start * (1 - step / STEPS)


def cema(w: Floats, grads: Floats) -> Iterator[tuple[Floats, Floats]]:
    m, h = np.zeros_like(w), np.zeros_like(w)
    for t, g in enumerate(grads):
        m = m + F(0.1) * (g - m)
        h = h + F(falling(0.02, t)) * (m - h)
        w = np.where(w * h > F(1e-3), -w, w)
        yield w, h


def cascade(w: Floats, grads: Floats) -> Iterator[tuple[Floats, Floats]]:
    m, v, h = np.zeros_like(w), np.zeros_like(w), np.zeros_like(w)
    for t, g in enumerate(grads):
        m = m + F(0.1) * (g - m)
        v = v + F(0.01) * (g * g - v)
        mean, square = m / F(1 - 0.9 ** (t + 1)), v / F(1 - 0.99 ** (t + 1))
        h = h + F(falling(0.02, t)) * (mean / (np.sqrt(square) + F(1e-10)) - h)
        w = np.where(w * h > 0, -w, w)
        yield w, h


def diode(w: Floats, grads: Floats) -> Iterator[tuple[Floats, Floats]]:
    m = np.zeros_like(w)
    even = np.mod(np.arange(WEIGHTS) * ((5**0.5 - 1) / 2), 1.0)
    s = (-1e-3 * even * w.astype(np.float64)).astype(np.float32)
    for t, g in enumerate(grads):
        m = m + F(0.05) * (g - m)
        s = s + F(falling(0.02, t)) * (np.sign(m) - s)
        w = np.where(w * s > 0, -w, w)
        yield w, s


CASES: dict[str, tuple[Callable[..., Any], type[Any], dict[str, float], str, str]] = {
    "cema": (cema, Cema, {"gamma": 0.1, "tau": 1e-3}, "sigma", "exp_avg_avg"),
    "cascade": (cascade, CascadedBop2nd, {"gamma": 0.1, "sigma": 0.01}, "alpha", "signal_avg"),
    "diode": (diode, Diode, {"gamma": 0.05}, "alpha", "sign_avg"),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_numpy_bit_for_bit(name: str) -> None:
    transcription, optimizer_class, fields, rate, slot = CASES[name]
    random = np.random.default_rng(8)
    grads = (random.normal(size=(STEPS, WEIGHTS)) + random.normal(size=WEIGHTS, scale=0.1)).astype(np.float32)
    grads[:, ::97] = 0  # dead weights
    start = np.where(random.random(WEIGHTS) < 0.5, -1, 1).astype(np.float32)
    weight = BinaryParameter(torch.from_numpy(start.copy()))
    optimizer = optimizer_class([weight], **fields)
    schedules = Schedules(optimizer, {rate: Polynomial(0.02, 0.0)}, STEPS)
    before, flips, late = start, 0, 0
    for t, (w, decider) in enumerate(transcription(start, grads)):
        weight.grad = torch.from_numpy(grads[t])
        optimizer.step()
        schedules.step()
        np.testing.assert_array_equal(weight.detach().numpy(), w, err_msg=f"weights at step {t}")
        np.testing.assert_array_equal(optimizer.state[weight][slot].numpy(), decider, err_msg=f"{slot} at step {t}")
        flips += int((w != before).sum())
        late += int((w != before).sum()) * (t >= STEPS - 10)
        before = w
    assert flips > WEIGHTS / 4
    assert late < flips / 50, "flips end when the rate does"
    assert optimizer.param_groups[0][rate] == 0.0


@pytest.mark.parametrize("scale", [2.0**-20, 2.0**20])
@pytest.mark.parametrize("optimizer_class", [CascadedBop2nd, Diode])
def test_scaled_loss_leaves_the_flips(optimizer_class: type[Any], scale: float) -> None:
    grads = torch.randn(80, 3000, generator=torch.Generator().manual_seed(4))
    ends = []
    for factor in (1.0, scale):
        weight = BinaryParameter(torch.ones(3000))
        options = {"eps": 0.0} if optimizer_class is CascadedBop2nd else {}
        optimizer = optimizer_class([weight], alpha=0.05, **options)
        for grad in grads:
            weight.grad = grad * factor
            optimizer.step()
        ends.append(weight.detach().clone())
    assert torch.equal(*ends)
    assert 0.1 < float((ends[0] < 0).float().mean()) < 0.9


def test_warm_start_keeps_trained_weights() -> None:
    start = torch.where(torch.rand(2000, generator=torch.Generator().manual_seed(1)) < 0.5, -1.0, 1.0)
    for warm, kept in ((1.0, 1.0), (0.0, 0.5)):
        weight = BinaryParameter(start.clone())
        optimizer = CascadedBop2nd([weight], alpha=1e-2, warm_start=warm)
        weight.grad = torch.randn(2000, generator=torch.Generator().manual_seed(2))
        optimizer.step()
        assert float((weight == start).float().mean()) == pytest.approx(kept, abs=0.03)


@pytest.mark.parametrize("rates", [(0.1, 0.02), (0.3, 0.3)])
def test_noise_flips_two_averages_as_often_as_expected(rates: tuple[float, float]) -> None:
    gamma, alpha = rates
    weight = BinaryParameter(torch.ones(4000))
    optimizer = Cema([weight], gamma=gamma, sigma=alpha)
    generator = torch.Generator().manual_seed(3)
    flips = []
    for step in range(500):
        before = weight.detach().clone()
        weight.grad = torch.randn(4000, generator=generator)
        optimizer.step()
        if step >= 200:
            flips.append(float((weight != before).float().mean()))
    assert float(np.mean(flips)) == pytest.approx(noise_flip_ratio(gamma, alpha), rel=0.03)
