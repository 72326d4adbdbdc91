"""Schedules: their values, what they write, and where (facts, section 7: 8)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from bitedge.train.errors import TrainError
from bitedge.train.nn.parameter import BinaryParameter
from bitedge.train.optim import (
    SCHEDULES,
    Bop,
    Bop2ndOrder,
    Constant,
    Cosine,
    Exponential,
    Geometric,
    ModelOptimizer,
    Polynomial,
    Schedule,
    Schedules,
    Triangle,
)


@pytest.mark.parametrize(
    ("schedule", "values"),
    [
        # at steps 0, 25, 50, 100 and 1000 of 100
        (Constant(3.0), (3.0, 3.0, 3.0, 3.0, 3.0)),
        (Polynomial(1e-2, 1e-4), (1e-2, 7.525e-3, 5.05e-3, 1e-4, 1e-4)),
        (Polynomial(1e-7, 1e-2), (1e-7, 2.500075e-3, 5.00005e-3, 1e-2, 1e-2)),
        (Polynomial(1.0, 0.0, power=2.0), (1.0, 0.5625, 0.25, 0.0, 0.0)),
        (Polynomial(1.0, 0.0, steps=50), (1.0, 0.5, 0.0, 0.0, 0.0)),
        (Geometric(1e-4, 1e-8), (1e-4, 1e-5, 1e-6, 1e-8, 1e-8)),
        (Geometric(1e-8, 1e-4), (1e-8, 1e-7, 1e-6, 1e-4, 1e-4)),
        (Cosine(2.0, 0.0), (2.0, 1.0 + 0.5**0.5, 1.0, 0.0, 0.0)),
        (Cosine(0.0, 2.0), (0.0, 1.0 - 0.5**0.5, 1.0, 2.0, 2.0)),
        (Cosine(1e-2, 1e-6, log=True), (1e-2, 10 ** -(2 + 4 * (1 - 0.5**0.5) / 2), 1e-4, 1e-6, 1e-6)),
        (Exponential(1e-3, 0.1, every=40), (1e-3, 1e-3, 1e-4, 1e-5, 1e-5)),
        (Exponential(1e-3, 10.0, every=40), (1e-3, 1e-3, 1e-2, 1e-1, 1e-1)),
        (Exponential(1.0, 0.25, every=50, staircase=False), (1.0, 0.5, 0.25, 0.25**1.98, 0.25**1.98)),
    ],
    ids=repr,
)
def test_values(schedule: Schedule, values: tuple[float, ...]) -> None:
    assert [schedule.value(step, 100) for step in (0, 25, 50, 100, 1000)] == pytest.approx(values, rel=1e-12)


@given(
    kind=st.sampled_from([Polynomial, Geometric, Cosine]),
    start=st.floats(1e-9, 1.0),
    end=st.floats(1e-9, 1.0),
    total=st.integers(1, 300),
)
def test_ranges_run_from_start_to_end_without_turning(kind: Any, start: float, end: float, total: int) -> None:
    schedule = kind(start, end)
    values = [schedule.value(step, total) for step in range(total + 3)]
    assert values[0] == start
    assert values[total:] == [end] * 3
    slack = 1e-12 * max(start, end)
    rises = [later - earlier for earlier, later in pairwise(values)]
    assert all(rise >= -slack for rise in rises) if end >= start else all(rise <= slack for rise in rises)


def test_every_kind_has_a_name() -> None:
    assert set(SCHEDULES.values()) == {Constant, Polynomial, Geometric, Cosine, Triangle, Exponential}


@pytest.mark.parametrize(
    "make",
    [
        lambda: Geometric(0.0, 1.0),
        lambda: Cosine(1.0, 0.0, log=True),
        lambda: Exponential(1.0, 0.0, every=10),
        lambda: Exponential(1.0, 0.1, every=0),
    ],
)
def test_impossible_schedules_are_refused(make: Any) -> None:
    with pytest.raises(TrainError, match="needs"):
        make()


def model_optimizer(**options: Any) -> ModelOptimizer:
    named = [("w", BinaryParameter(torch.ones(2))), ("b", nn.Parameter(torch.ones(2)))]
    return ModelOptimizer(named, rule="bop2nd", **options)


def test_fields_reach_only_the_groups_that_read_them() -> None:
    optimizer = model_optimizer()
    schedules = Schedules(optimizer, {"gamma": Polynomial(1e-2, 1e-4), "lr": Polynomial(0.1, 0.0), "tau": 1e-3}, 100)
    binary, adam = optimizer.param_groups
    assert (binary["gamma"], binary["tau"], adam["lr"]) == (1e-2, 1e-3, 0.1)
    for _ in range(50):
        schedules.step()
    assert binary["gamma"] == pytest.approx(5.05e-3)
    assert adam["lr"] == pytest.approx(0.05)
    assert binary["lr"] == 1.0
    assert "gamma" not in adam


def test_set_is_a_function_of_the_step_alone() -> None:
    optimizer = model_optimizer()
    schedules = Schedules(optimizer, {"gamma": Geometric(1e-2, 1e-4), "lr": 0.1}, 10)
    schedules.set(9)
    later = optimizer.param_groups[0]["gamma"]
    schedules.set(0)
    assert optimizer.param_groups[0]["gamma"] == 1e-2
    for _ in range(9):
        schedules.step()
    assert optimizer.param_groups[0]["gamma"] == later


def test_resume_goes_on_from_the_saved_step() -> None:
    first = Schedules(model_optimizer(), {"gamma": Polynomial(1e-2, 1e-4)}, 10)
    for _ in range(4):
        first.step()
    optimizer = model_optimizer()
    second = Schedules(optimizer, {"gamma": Polynomial(1e-2, 1e-4)}, 10)
    second.load_state_dict(first.state_dict())
    assert second.current == 4
    assert optimizer.param_groups[0]["gamma"] == first.optimizer.param_groups[0]["gamma"]


def test_tensor_fields_are_filled_in_place() -> None:
    optimizer = Bop([BinaryParameter(torch.ones(2))], capturable=True)
    gamma = optimizer.param_groups[0]["gamma"]
    schedules = Schedules(optimizer, {"gamma": Polynomial(1e-2, 1e-4)}, 10)
    schedules.step()
    assert optimizer.param_groups[0]["gamma"] is gamma
    assert gamma.item() == pytest.approx(9.01e-3, rel=1e-12)


def test_torchs_own_optimizers_have_their_lr_scheduled() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=1.0)
    schedules = Schedules(optimizer, {"lr": Cosine(0.1, 0.0)}, 10)
    schedules.set(5)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05)


def test_fields_that_nothing_reads_are_refused() -> None:
    weight = BinaryParameter(torch.ones(2))
    with pytest.raises(
        TrainError, match="no parameter group has a field 'sigma' to schedule: rule 'bop' reads gamma, tau"
    ):
        Schedules(Bop([weight]), {"sigma": 1e-3}, 10)
    with pytest.raises(TrainError, match="field 'lr'"):
        Schedules(Bop2ndOrder([weight]), {"lr": 1e-3}, 10)


def test_values_out_of_range_are_refused_before_the_run() -> None:
    weight = BinaryParameter(torch.ones(2))
    with pytest.raises(TrainError, match=r"schedule: gamma must lie in \[0, 1\], got 2"):
        Schedules(Bop([weight]), {"gamma": Polynomial(1e-2, 2.0)}, 10)
    with pytest.raises(TrainError, match="total_steps must be at least 1, got 0"):
        Schedules(Bop([weight]), {"gamma": 1e-2}, 0)


def test_triangle_rises_and_falls() -> None:
    triangle = Triangle(0.2, 1.0, 0.1, 0.25)
    values = [triangle.value(step, 100) for step in (0, 10, 25, 50, 100, 200)]
    assert values == pytest.approx([0.2, 0.52, 1.0, 0.7, 0.1, 0.1])
    with pytest.raises(TrainError, match="largest value inside the run"):
        Triangle(0.2, 0.1, 0.0, 0.25)
