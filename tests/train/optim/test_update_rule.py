"""The update rules against an independent numpy transcription, bit for bit (facts, section 1.1 and table 1.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pytest
import torch

from bitedge.train.nn.parameter import BinaryParameter
from bitedge.train.optim import Bop, Bop2ndOrder, Exponential, Polynomial, Schedule, Schedules

Floats = npt.NDArray[np.float32]
Values = Callable[[str, int], float]
STEPS, WEIGHTS, EPS = 200, 20_000, np.float32(1e-10)


def transcription(rule: str, w: Floats, grads: Floats, values: Values) -> Iterator[tuple[Floats, Floats, Floats]]:
    """Weights, m and v after every step, by the paper's algorithm in float32; a tie keeps the weight."""
    m, v = np.zeros_like(w), np.zeros_like(w)
    seen, seen_sq = 0.0, 0.0
    for t, g in enumerate(grads):
        gamma, sigma, tau = (np.float32(values(name, t)) for name in ("gamma", "sigma", "tau"))
        m = m + gamma * (g - m)
        v = v + sigma * (g * g - v)
        seen += values("gamma", t) * (1 - seen)
        seen_sq += values("sigma", t) * (1 - seen_sq)
        if rule == "bop":
            s = m
        elif rule == "biased":
            s = m / (np.sqrt(v) + EPS)
        elif rule == "unbiased":
            s = (m / gamma) / (np.sqrt(v / sigma) + EPS)
        else:
            s = (m / np.float32(seen)) / (np.sqrt(v / np.float32(seen_sq)) + EPS)
        w = np.where(w * s > tau, -w, w)
        assert w.dtype == m.dtype == v.dtype == s.dtype == np.float32
        yield w, m, v


# Each kind of schedule twice: the value by hand, and the schedule that the package is to compute it with.
CONSTANT = {"gamma": 1e-3, "sigma": 1e-3, "tau": 2e-2}
RANGES = {"gamma": (1e-2, 1e-4), "sigma": (1e-4, 1e-2), "tau": (1e-4, 1e-1)}
STAIRS = {"gamma": (1e-2, 0.1), "sigma": (1e-3, 10.0), "tau": (1e-2, 0.5)}


def by_hand(kind: str, name: str, step: int, scale: float) -> float:
    factor = scale if name == "tau" else 1.0
    if kind == "constant":
        return CONSTANT[name] * factor
    if kind == "polynomial":
        start, end = (bound * factor for bound in RANGES[name])
        return (start - end) * (1.0 - step / STEPS) + end
    start, ratio = STAIRS[name]
    return float(start * factor * ratio ** (step // 70))


def scheduled(kind: str, name: str, scale: float) -> float | Schedule:
    factor = scale if name == "tau" else 1.0
    if kind == "constant":
        return CONSTANT[name] * factor
    if kind == "polynomial":
        return Polynomial(RANGES[name][0] * factor, RANGES[name][1] * factor)
    return Exponential(STAIRS[name][0] * factor, STAIRS[name][1], every=70)


@pytest.mark.parametrize("kind", ["constant", "polynomial", "staircase"])
@pytest.mark.parametrize("rule", ["bop", "biased", "unbiased", "adam"])
def test_equals_numpy_bit_for_bit(rule: str, kind: str) -> None:
    random = np.random.default_rng(7)
    # a drift for each weight on top of the noise, so that some weights settle and others keep flipping
    drift = random.normal(size=WEIGHTS, scale=0.1)
    grads = (random.normal(size=(STEPS, WEIGHTS)) + drift).astype(np.float32) * np.float32(1e-3)
    grads[:, ::97] = 0  # dead weights
    start = np.where(random.random(WEIGHTS) < 0.5, -1, 1).astype(np.float32)
    scale = {"bop": 1e-3, "unbiased": 30.0}.get(rule, 1.0)  # tau in the units of the rule's own s

    weight = BinaryParameter(torch.from_numpy(start.copy()))
    optimizer = Bop([weight]) if rule == "bop" else Bop2ndOrder([weight], mode=rule)  # type: ignore[arg-type]
    fields = {name: scheduled(kind, name, scale) for name in optimizer.rule.scheduled}
    schedules = Schedules(optimizer, fields, STEPS)
    before, flips = start, 0
    expected = transcription(rule, start, grads, lambda name, step: by_hand(kind, name, step, scale))
    for t, (w, m, v) in enumerate(expected):
        weight.grad = torch.from_numpy(grads[t])
        optimizer.step()
        schedules.step()
        np.testing.assert_array_equal(weight.detach().numpy(), w, err_msg=f"weights at step {t}")
        np.testing.assert_array_equal(optimizer.state[weight]["exp_avg"].numpy(), m, err_msg=f"m at step {t}")
        if rule != "bop":
            np.testing.assert_array_equal(optimizer.state[weight]["exp_avg_sq"].numpy(), v, err_msg=f"v at step {t}")
        flips += int((w != before).sum())
        before = w
    assert 0.0005 < flips / (STEPS * WEIGHTS) < 0.5, "the comparison needs weights that flip and weights that stay"


def test_root_is_correctly_rounded() -> None:
    from bitedge.train.optim.kernel import root

    values = torch.rand(100_000, generator=torch.Generator().manual_seed(0)) * 1e-3
    expected = values.double().sqrt().float()
    assert torch.equal(root(values, out=torch.empty_like(values)), expected)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_tie_keeps_the_weight(sign: float) -> None:
    weight = BinaryParameter(torch.tensor([sign, sign, sign]))
    optimizer = Bop([weight], gamma=1.0, tau=0.5)
    weight.grad = sign * torch.tensor([0.5, float(np.nextafter(np.float32(0.5), np.float32(1))), -0.5])
    optimizer.step()
    assert weight.tolist() == [sign, -sign, sign]


def test_zero_gradient_and_zero_tau_change_nothing() -> None:
    start = torch.tensor([1.0, -1.0])
    for optimizer_class in (Bop, Bop2ndOrder):
        weight = BinaryParameter(start.clone())
        optimizer = optimizer_class([weight], tau=0.0)
        weight.grad = torch.zeros(2)
        optimizer.step()
        assert torch.equal(weight, start)


def test_adam_mode_is_adams_correction_for_constant_rates() -> None:
    weight = BinaryParameter(torch.ones(1))
    optimizer = Bop2ndOrder([weight], gamma=0.1, sigma=0.01, tau=1e9, mode="adam")
    for step in range(1, 30):
        weight.grad = torch.ones(1)
        optimizer.step()
        assert optimizer.state[weight]["seen"].item() == pytest.approx(1 - 0.9**step, rel=1e-12)
        assert optimizer.state[weight]["seen_sq"].item() == pytest.approx(1 - 0.99**step, rel=1e-12)
        signal = optimizer.rule.signal(optimizer.state[weight], optimizer.param_groups[0])
        assert signal.item() == pytest.approx(1.0, rel=1e-5)  # a constant gradient is known from the first step on
