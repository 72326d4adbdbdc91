from __future__ import annotations

import pytest

from bitedge.serve.rate import ServiceRate


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_steady_rate_is_found_and_idle_time_does_not_count() -> None:
    clock = Clock()
    rate = ServiceRate(clock)
    assert rate.seconds_for(10) == 0
    for _ in range(50):
        rate.begin(0)
        clock.now += 0.01
        rate.completed(2)
        clock.now += 5.0
    assert rate.per_second == pytest.approx(200)
    assert rate.seconds_for(100) == pytest.approx(0.5)


def test_the_rate_follows_a_change() -> None:
    clock = Clock()
    rate = ServiceRate(clock)
    for per_second in (100, 10):
        for _ in range(per_second * 5):
            clock.now += 1 / per_second
            rate.completed(1)
    assert rate.per_second == pytest.approx(10, rel=0.1)


def test_what_was_only_dropped_does_not_count() -> None:
    clock = Clock()
    rate = ServiceRate(clock)
    clock.now = 1.0
    rate.completed(0)
    assert rate.per_second == 0
