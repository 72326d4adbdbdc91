"""The benchmark measures what it says; its figures are not judged here."""

from __future__ import annotations

import pytest
import torch

from bitedge.train.errors import TrainError
from bitedge.train.optim.benchmark import benchmark, interleave, quotient


def test_reports_every_candidate() -> None:
    threads = torch.get_num_threads()
    result = benchmark(width=4, batch=2, rounds=2, training_rounds=1, threads=1, compiled=False)
    rules = {"bop", "bop2nd biased", "bop2nd unbiased", "bop2nd adam"}
    assert set(result["step_ms"]) == {"adam fused", "adam foreach", *rules}
    assert set(result["step_ratio"]) == rules
    assert set(result["step_ratio"]["bop"]) == {"adam fused", "adam foreach"}
    assert set(result["training_ms"]) == rules
    assert set(result["training_ratio"]) == rules - {"bop"}
    assert all(value > 0 for value in [*result["step_ms"].values(), *result["training_ms"].values()])
    assert result["threads"] == 1
    assert torch.get_num_threads() == threads


def test_candidates_take_turns_after_a_warm_up() -> None:
    calls: list[str] = []
    seconds = interleave({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=2)
    assert calls == ["a", "b"] * 3
    assert [len(times) for times in seconds.values()] == [2, 2]


def test_ratio_is_paired_by_round() -> None:
    assert quotient([2.0, 20.0, 3.0], [1.0, 10.0, 1.0]) == 2.0


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(TrainError, match="got 0, 128, 50 and 5"):
        benchmark(rounds=0)
