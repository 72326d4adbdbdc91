"""The order of images: pure, complete, the same whatever the number of processes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitedge.train.data.plan import EpochPlan, stratified_holdout
from bitedge.train.errors import TrainError


@given(size=st.integers(1, 300), batch=st.integers(1, 40), world=st.integers(1, 4), seed=st.integers(0, 5))
def test_in_order_every_image_comes_once(size: int, batch: int, world: int, seed: int) -> None:
    plans = [EpochPlan(size, batch * world, seed, False, rank, world) for rank in range(world)]
    seen = np.concatenate([plan.indices(0) for plan in plans])
    assert sorted(seen.tolist()) == list(range(size))
    for plan in plans:
        assert len(plan) == -(-len(plan.indices(0)) // plan.local_batch)


@given(size=st.integers(8, 300), batch=st.integers(1, 2), world=st.integers(1, 4), epoch=st.integers(0, 9))
def test_a_step_trains_on_the_same_images_whatever_the_processes(size: int, batch: int, world: int, epoch: int) -> None:
    whole = EpochPlan(size, batch * world, 3, True)
    parts = [EpochPlan(size, batch * world, 3, True, rank, world) for rank in range(world)]
    assert {len(part) for part in parts} == {len(whole)} == {size // (batch * world)}
    for step in range(len(whole)):
        together = whole.indices(epoch)[step * batch * world : (step + 1) * batch * world]
        split = np.concatenate([part.indices(epoch)[step * batch : (step + 1) * batch] for part in parts])
        assert sorted(together.tolist()) == sorted(split.tolist())


def test_order_depends_on_seed_and_epoch_only() -> None:
    plan = EpochPlan(1000, 10, 7, True)
    assert np.array_equal(plan.indices(4), EpochPlan(1000, 10, 7, True).indices(4))
    assert not np.array_equal(plan.indices(4), plan.indices(5))
    assert not np.array_equal(plan.indices(4), EpochPlan(1000, 10, 8, True).indices(4))
    assert len(set(plan.indices(4).tolist())) == 1000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be a positive multiple"),
        ({"batch_size": 5, "world": 2}, "positive multiple of the 2 processes, got 5"),
        ({"batch_size": 4, "rank": 2, "world": 2}, "rank must be in"),
        ({"batch_size": 4, "seed": -1}, "seed must not be negative"),
        ({"batch_size": 11, "shuffle": True}, "batch_size 11 is larger than the split, which has 10 images"),
    ],
)
def test_bad_plans_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TrainError, match=message):
        EpochPlan(10, **options)


@given(st.lists(st.integers(0, 6), min_size=2, max_size=200), st.data())
def test_holdout_is_a_proportional_partition(values: list[int], data: st.DataObject) -> None:
    labels = np.array(values, dtype=np.int64)
    count = data.draw(st.integers(0, len(labels) - 1))
    kept, held = stratified_holdout(labels, count, seed=1)
    assert len(held) == count
    assert sorted([*kept.tolist(), *held.tolist()]) == list(range(len(labels)))
    for label in set(values):
        share = (labels == label).sum() * count / len(labels)
        assert abs((labels[held] == label).sum() - share) < 1


def test_holdout_refuses_to_take_everything() -> None:
    with pytest.raises(TrainError, match="cannot hold out 3 of 3 images"):
        stratified_holdout(np.zeros(3, np.int64), 3, seed=0)
