"""The update rules against an independent numpy transcription, bit for bit (facts, section 1.1 and table 1.5)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import torch

from bitedge.train.binary import BinaryParameter
from bitedge.train.optim import Bop, Bop2ndOrder

Floats = npt.NDArray[np.float32]
STEPS, WEIGHTS = 200, 20_000


def flip(w: Floats, s: Floats, tau: float) -> Floats:
    """w becomes -w iff w·s > tau, strictly."""
    return np.where(w * s > np.float32(tau), -w, w)


def reference(rule: str, w: Floats, grads: Floats, values: Callable[[str, int], float], eps: float) -> list[Floats]:
    """Every weight after every step, by the paper's algorithm in float32."""
    m, v = np.zeros_like(w), np.zeros_like(w)
    seen, seen_sq = 0.0, 0.0
    history = []
    for t, g in enumerate(grads):
        gamma, sigma = np.float32(values("gamma", t)), np.float32(values("sigma", t))
        m = m + gamma * (g - m)
        v = v + sigma * (g * g - v)
        seen += values("gamma", t) * (1 - seen)
        seen_sq += values("sigma", t) * (1 - seen_sq)
        s = {
            "bop": lambda m=m, v=v: m,
            "biased": lambda m=m, v=v: m / (np.sqrt(v) + np.float32(eps)),
            "unbiased": lambda m=m, v=v, a=gamma, b=sigma: (m / a) / (np.sqrt(v / b) + np.float32(eps)),
            "adam": lambda m=m, v=v, a=np.float32(seen), b=np.float32(seen_sq): (
                (m / a) / (np.sqrt(v / b) + np.float32(eps))
            ),
        }[rule]()
        w = flip(w, s, values("tau", t))
        assert w.dtype == m.dtype == v.dtype == s.dtype == np.float32
        history.append(w)
    return history


def constant(name: str, step: int) -> float:
    return {"gamma": 1e-3, "sigma": 1e-3, "tau": 2e-2}[name]


def polynomial(name: str, step: int) -> float:
    start, end = {"gamma": (1e-2, 1e-4), "sigma": (1e-4, 1e-2), "tau": (1e-4, 1e-1)}[name]
    return (start - end) * (1 - step / STEPS) + end


def staircase(name: str, step: int) -> float:
    start, factor = {"gamma": (1e-2, 0.1), "sigma": (1e-3, 10.0), "tau": (1e-2, 0.5)}[name]
    return float(start * factor ** (step // 70))


@pytest.mark.parametrize("values", [constant, polynomial, staircase])
@pytest.mark.parametrize("rule", ["bop", "biased", "unbiased", "adam"])
def test_equals_numpy_bit_for_bit(rule: str, values: Callable[[str, int], float]) -> None:
    random = np.random.default_rng(7)
    # a drift for each weight on top of the noise, so that some weights settle and others keep flipping
    drift = random.normal(size=WEIGHTS, scale=0.1)
    grads = (random.normal(size=(STEPS, WEIGHTS)) + drift).astype(np.float32) * np.float32(1e-3)
    grads[:, ::97] = 0  # dead weights: s is 0/0 without eps, and ties with tau = 0
    start = np.where(random.random(WEIGHTS) < 0.5, -1, 1).astype(np.float32)
    scale = {"bop": 1e-3, "unbiased": 30.0}.get(rule, 1.0)  # tau in the units of the rule's own s

    def scaled(name: str, step: int) -> float:
        return values(name, step) * (scale if name == "tau" else 1.0)

    expected = reference(rule, start, grads, scaled, 1e-10)
    weight = BinaryParameter(torch.from_numpy(start.copy()))
    optimizer = Bop([weight]) if rule == "bop" else Bop2ndOrder([weight], mode=rule)  # type: ignore[arg-type]
    flips = 0
    before = start
    for t in range(STEPS):
        for name in optimizer.rule.scheduled:
            optimizer.param_groups[0][name] = scaled(name, t)
        weight.grad = torch.from_numpy(grads[t])
        optimizer.step()
        after = weight.detach().numpy()
        np.testing.assert_array_equal(after, expected[t], err_msg=f"step {t}")
        flips += int((after != before).sum())
        before = after.copy()
    assert 0.0005 < flips / (STEPS * WEIGHTS) < 0.5, "the comparison needs weights that flip and weights that stay"
    assert (start == before).any()
