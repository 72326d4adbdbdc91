from __future__ import annotations

import pytest

from bitedge.serve.inference.throughput import ThroughputEstimator


def test_the_rate_is_that_of_all_threads() -> None:
    rate = ThroughputEstimator(2)
    assert rate.seconds_for(10) == 0
    for _ in range(50):
        rate.add(2, 0.02)
    assert rate.per_second == pytest.approx(200)
    assert rate.seconds_for(100) == pytest.approx(0.5)


def test_the_rate_follows_a_change() -> None:
    rate = ThroughputEstimator(1)
    for per_second in (100, 10):
        for _ in range(per_second * 5):
            rate.add(1, 1 / per_second)
    assert rate.per_second == pytest.approx(10, rel=0.1)


def test_one_slow_batch_does_not_stay() -> None:
    rate = ThroughputEstimator(1)
    rate.add(1, 30.0)
    for _ in range(500):
        rate.add(10, 0.01)
    assert rate.per_second == pytest.approx(1000, rel=0.3)


def test_what_was_only_dropped_does_not_count() -> None:
    rate = ThroughputEstimator(1)
    rate.add(0, 1.0)
    assert rate.per_second == 0
