"""What the telemetry counts, what it costs, and when it speaks up."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bitedge.train.errors import TrainError
from bitedge.train.nn.parameter import BinaryParameter
from bitedge.train.optim import (
    Bop,
    Bop2ndOrder,
    ModelOptimizer,
    OptimizerWarning,
    Telemetry,
    flip_measure,
    noise_flip_ratio,
)


def signs(*shape: int, seed: int = 0) -> Tensor:
    return torch.where(torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.5, -1.0, 1.0)


def feed(optimizer: torch.optim.Optimizer, parameters: list[Any], steps: int, seed: int = 5) -> None:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()


@pytest.mark.parametrize("options", [{"foreach": False}, {"foreach": True}])
@pytest.mark.parametrize("mode", ["biased", "unbiased", "adam"])
def test_counts_agree_with_a_recount(mode: Any, options: dict[str, Any]) -> None:
    first, second = BinaryParameter(signs(40, 10)), BinaryParameter(signs(300, seed=1))
    real = nn.Parameter(torch.zeros(4))
    named = [("a.weight", first), ("b.weight", second), ("bias", real)]
    tau = 0.8 if mode == "unbiased" else 0.08
    optimizer = ModelOptimizer(named, rule="bop2nd", gamma=1e-1, sigma=1e-2, tau=tau, mode=mode, **options)
    telemetry = Telemetry(optimizer, every=1, never_flipped=True)
    ever = [torch.zeros_like(p, dtype=torch.bool) for p in (first, second)]
    for step in range(12):
        before = [p.detach().clone() for p in (first, second)]
        feed(optimizer, [first, second, real], 1, seed=step)
        report = telemetry.latest
        assert report is not None
        assert report.step == step
        assert [layer.name for layer in report.layers] == ["a.weight", "b.weight"]
        for index, (layer, parameter) in enumerate(zip(report.layers, (first, second), strict=True)):
            flipped = before[index] != parameter
            ever[index] |= flipped
            state = optimizer.state[parameter]
            m, v = state["exp_avg"].double(), state["exp_avg_sq"].double()
            if mode == "unbiased":
                m, v = m / 1e-1, v / 1e-2
            if mode == "adam":
                m, v = m / (1 - 0.9 ** (step + 1)), v / (1 - 0.99 ** (step + 1))
            s = (m / (v.sqrt() + 1e-10)).abs()
            assert layer.flips == int(flipped.sum())
            assert layer.never_flipped == int((~ever[index]).sum())
            assert layer.within_tau == int((s <= tau).sum())
            assert layer.median == pytest.approx(float(s.flatten().median()), rel=1e-5)
        assert report.total.weights == 700
        assert report.total.flips == sum(layer.flips for layer in report.layers)
        assert report.hyper == {"gamma": 1e-1, "sigma": 1e-2, "tau": tau, "lr": 1e-2, "tau_s": tau}
    assert report is not None
    assert 0 < report.total.flips < 700
    assert 0 < report.total.within_tau < 700


def test_record_is_flat() -> None:
    weight = BinaryParameter(signs(100))
    optimizer = Bop([("conv.weight", weight)], gamma=0.5, tau=0.1)
    telemetry = Telemetry(optimizer, every=1)
    feed(optimizer, [weight], 1)
    assert telemetry.latest is not None
    record = telemetry.latest.as_dict()
    assert record["flip_ratio"] == record["conv.weight/flip_ratio"] == telemetry.latest.total.flips / 100
    assert record["pi"] == math.log(record["flip_ratio"] + math.exp(-9))
    assert record["noise_flip_ratio"] == noise_flip_ratio(0.5)
    assert record["gamma"] == 0.5
    assert "never_flipped" not in record
    assert all(isinstance(value, float) for value in record.values())


def test_pi_has_the_papers_floor() -> None:
    assert flip_measure(0.0) == -9.0
    assert flip_measure(1.0) == pytest.approx(0.0, abs=2e-4)
    assert noise_flip_ratio(1e-4) == pytest.approx(math.sqrt(2e-4) / math.pi, rel=1e-4)


def test_observes_only_what_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = BinaryParameter(signs(50))
    optimizer = Bop([weight], gamma=0.1, tau=0.1)
    telemetry = Telemetry(optimizer)
    feed(optimizer, [weight], 3)
    assert telemetry.latest is None
    telemetry.ask()
    feed(optimizer, [weight], 2)
    assert telemetry.latest is not None
    assert telemetry.latest.step == 3

    spaced = Telemetry(optimizer, every=4)
    seen = []
    for _ in range(9):
        feed(optimizer, [weight], 1)
        assert spaced.latest is not None
        seen.append(spaced.latest.step)
    assert seen == [0, 0, 0, 0, 4, 4, 4, 4, 8]


def test_watching_changes_nothing() -> None:
    watched, plain = BinaryParameter(signs(500)), BinaryParameter(signs(500))
    first = Bop2ndOrder([watched], gamma=0.05, sigma=0.05, tau=0.05)
    second = Bop2ndOrder([plain], gamma=0.05, sigma=0.05, tau=0.05)
    Telemetry(first, every=1, never_flipped=True)
    feed(first, [watched], 20)
    feed(second, [plain], 20)
    assert torch.equal(watched, plain)
    assert torch.equal(first.state[watched]["exp_avg"], second.state[plain]["exp_avg"])


def test_close_stops_watching() -> None:
    weight = BinaryParameter(signs(50))
    optimizer = Bop([weight])
    telemetry = Telemetry(optimizer, every=1)
    telemetry.close()
    feed(optimizer, [weight], 1)
    assert telemetry.latest is None


def test_warns_once_when_tau_has_no_effect() -> None:
    weight = BinaryParameter(signs(2000))
    optimizer = Bop2ndOrder([weight], gamma=1e-2, sigma=1e-2, tau=1e-6, mode="unbiased")
    telemetry = Telemetry(optimizer, every=1, patience=3)
    feed(optimizer, [weight], 3)
    assert telemetry.latest is not None
    assert not telemetry.latest.advice
    with pytest.warns(
        OptimizerWarning, match="tau = 1e-06 has no effect.*raise tau.*act like tau = 1e-07 in mode 'bia"
    ):
        feed(optimizer, [weight], 1)
    feed(optimizer, [weight], 3)  # a second warning would be an error
    assert any("has no effect" in text for text in telemetry.latest.advice)


def test_warns_when_everything_is_frozen() -> None:
    weight = BinaryParameter(signs(2000))
    optimizer = Bop2ndOrder([weight], gamma=1e-2, sigma=1e-2, tau=10.0)
    Telemetry(optimizer, every=2, patience=2)
    with pytest.warns(OptimizerWarning, match=r"frozen: \|s\| <= tau = 10 for 100.0% .* lower tau below the median"):
        feed(optimizer, [weight], 5)


@pytest.mark.parametrize("tau", [0.0, 0.05])
def test_is_quiet_when_tau_works_or_is_off(tau: float) -> None:
    weight = BinaryParameter(signs(2000))
    optimizer = Bop2ndOrder([weight], gamma=1e-2, sigma=1e-2, tau=tau)
    telemetry = Telemetry(optimizer, every=1, patience=1)
    feed(optimizer, [weight], 30)
    assert telemetry.latest is not None
    assert not telemetry.latest.advice


def test_needs_binary_parameters() -> None:
    with pytest.raises(TrainError, match="needs an optimizer with binary parameters"):
        Telemetry(torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1))
    with pytest.raises(TrainError, match="every must be at least 0"):
        Telemetry(Bop([BinaryParameter(torch.ones(2))]), every=-1)
