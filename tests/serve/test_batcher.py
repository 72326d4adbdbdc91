from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.serve.pictures import pixels, png

from bitedge.serve.api.errors import MediaTypeError, ShedError
from bitedge.serve.inference import batcher as batcher_module
from bitedge.serve.inference.batcher import Batcher, batch_limit
from bitedge.serve.inference.job import Answer, BatchReport, Job
from bitedge.serve.inference.preprocessing import ImageLimits
from bitedge.serve.models.backends import ServedModel, load_model


class Held:
    """A real network that waits before it runs, so that a queue can build up behind it."""

    def __init__(self, path: Path) -> None:
        self.model = load_model(path, name="held", version="1")
        self.go = threading.Event()
        self.sizes: list[int] = []
        inner = self.model.make_runner

        def context() -> Callable[[NDArray[Any]], NDArray[np.float32]]:
            run = inner()

            def held(images: NDArray[Any]) -> NDArray[np.float32]:
                self.go.wait(30)
                self.sizes.append(len(images))
                return run(images)

            return held

        self.model.make_runner = context
        self.model._idle.clear()


@pytest.fixture
def held(networks: tuple[Path, Path]) -> Held:
    return Held(networks[0])


def job(model: ServedModel, seed: int = 0, *, seconds: float = 60.0) -> Job:
    return Job(model=model, payload=png(seed), deadline=time.perf_counter() + seconds)


def with_batcher(body: Callable[[Batcher], Awaitable[None]], **options: Any) -> None:
    settings: dict[str, Any] = {"threads": 1, "capacity": 64, "max_batch": 8, "delay": 0.0, "limits": ImageLimits()}

    async def main() -> None:
        batcher = Batcher(**{**settings, **options})
        batcher.start()
        try:
            await asyncio.wait_for(body(batcher), 60)
        finally:
            await asyncio.to_thread(batcher.stop)

    asyncio.run(main())


def test_every_job_gets_its_own_answer(networks: tuple[Path, Path]) -> None:
    models = [load_model(path, name="m", version="1") for path in networks]
    expected = [model.run(np.stack([pixels(seed) for seed in range(40)])) for model in models]

    async def body(batcher: Batcher) -> None:
        futures = [batcher.submit(job(models[seed % 2], seed)) for seed in range(40)]
        for seed, future in enumerate(futures):
            np.testing.assert_allclose((await future).outputs[0], expected[seed % 2][seed], rtol=1e-6)
        assert batcher.pending == 0

    with_batcher(body, threads=2)


def test_what_waits_is_run_together_up_to_the_limit(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batcher_module, "BATCH_SECONDS", math.inf)  # a busy machine must not make the batches small
    reports: list[BatchReport] = []

    async def body(batcher: Batcher) -> None:
        futures = [batcher.submit(job(held.model, seed)) for seed in range(20)]
        held.go.set()
        answers = [await future for future in futures]
        assert max(held.sizes) == 8
        assert sum(held.sizes) == 20
        assert [answer.batch_size for answer in answers if answer.batch_size > 8] == []
        assert sum(report.images for report in reports) == 20

    with_batcher(body, on_batch=reports.append)


def test_a_delay_lets_a_batch_fill(networks: tuple[Path, Path]) -> None:
    model = load_model(networks[0], name="m", version="1")

    async def body(batcher: Batcher) -> None:
        futures = []
        for seed in range(4):
            futures.append(batcher.submit(job(model, seed)))
            await asyncio.sleep(0.01)
        assert [(await future).batch_size for future in futures] == [4] * 4

    with_batcher(body, delay=30.0, max_batch=4)


def test_a_tensor_larger_than_a_batch_runs_alone(held: Held) -> None:
    async def body(batcher: Batcher) -> None:
        images = np.stack([pixels(seed) for seed in range(12)])
        large = batcher.submit(Job(model=held.model, payload=images, deadline=time.perf_counter() + 60, count=12))
        small = batcher.submit(job(held.model))
        held.go.set()
        assert (await large).outputs.shape == (12, 10)
        assert (await small).batch_size == 1

    with_batcher(body)


def test_a_full_queue_sheds_and_says_when_to_come_back(held: Held) -> None:
    async def body(batcher: Batcher) -> None:
        futures = [batcher.submit(job(held.model)) for _ in range(4)]
        with pytest.raises(ShedError, match="queue is full") as caught:
            batcher.submit(job(held.model))
        assert caught.value.reason == "queue_full"
        assert int(dict(caught.value.headers())["retry-after"]) >= 1
        held.go.set()
        for future in futures:
            await future
        await batcher.submit(job(held.model))

    with_batcher(body, capacity=4)


def test_work_that_cannot_begin_in_time_is_shed_at_once(held: Held) -> None:
    async def body(batcher: Batcher) -> None:
        batcher.throughput.add(10, 1.0)
        futures = [batcher.submit(job(held.model)) for _ in range(20)]
        batcher.check_capacity(1, budget=4.0)
        with pytest.raises(ShedError, match=r"about 2.00 s; the deadline is in 1.00 s") as caught:
            batcher.check_capacity(1, budget=1.0)
        assert dict(caught.value.headers())["retry-after"] == "2"
        held.go.set()
        await asyncio.gather(*futures)

    with_batcher(body)


def test_a_late_event_loop_counts_as_time_to_wait(networks: tuple[Path, Path]) -> None:
    """The answer passes the event loop, too: without this, accepted requests missed their deadline under overload."""
    model = load_model(networks[0], name="m", version="1")

    async def body(batcher: Batcher) -> None:
        batcher.lag = 20.0
        batcher.check_capacity(1, budget=100.0)
        with pytest.raises(ShedError, match=r"deadline is in 60\.00 s"):
            batcher.check_capacity(1, budget=60.0)
        with pytest.raises(ShedError, match="the deadline cannot be met"):
            await batcher.submit(job(model, seconds=30.0))
        await batcher.submit(job(model, seconds=600.0))

    with_batcher(body)


def test_an_expired_job_is_dropped_before_it_runs(held: Held) -> None:
    async def body(batcher: Batcher) -> None:
        first = batcher.submit(job(held.model))
        await asyncio.sleep(0.1)
        late = batcher.submit(job(held.model, seconds=0.01))
        await asyncio.sleep(0.1)
        held.go.set()
        await first
        with pytest.raises(ShedError, match="deadline cannot be met"):
            await late
        assert held.sizes == [1]

    with_batcher(body)


def test_a_job_that_would_be_late_is_dropped_but_one_slow_moment_condemns_nobody_for_ever(held: Held) -> None:
    async def body(batcher: Batcher) -> None:
        held.go.set()
        held.model.seconds_per_image = 5.0  # one run was terribly slow
        refused = 0
        while refused < 100:
            try:
                await batcher.submit(job(held.model, seconds=1.0))
                break
            except ShedError:
                refused += 1
        assert 1 <= refused < 100
        assert held.model.seconds_per_image < 1.0

    with_batcher(body)


def test_batches_are_small_when_an_image_takes_long() -> None:
    assert batch_limit(0.0, 32) == 32
    assert batch_limit(0.0001, 32) == 32
    assert batch_limit(0.01, 32) == 5
    assert batch_limit(3.0, 32) == 1


def test_a_cancelled_job_is_dropped_before_it_is_decoded(held: Held) -> None:
    drops: list[tuple[str, int]] = []

    async def body(batcher: Batcher) -> None:
        first = batcher.submit(job(held.model))
        await asyncio.sleep(0.1)
        left = job(held.model)
        future = batcher.submit(left)
        left.cancelled = True
        future.cancel()
        held.go.set()
        await first
        while batcher.pending:
            await asyncio.sleep(0.01)
        assert left.tensor is None
        assert held.sizes == [1]

    with_batcher(body, on_drop=lambda reason, count: drops.append((reason, count)))
    assert drops == [("disconnected", 1)]


def test_a_bad_image_harms_nobody_else(held: Held) -> None:
    async def body(batcher: Batcher) -> None:
        first = batcher.submit(job(held.model))
        bad = batcher.submit(Job(model=held.model, payload=b"no image", deadline=time.perf_counter() + 60))
        good = batcher.submit(job(held.model))
        held.go.set()
        with pytest.raises(MediaTypeError):
            await bad
        assert isinstance(await first, Answer)
        assert isinstance(await good, Answer)

    with_batcher(body)


def test_a_model_that_fails_answers_everyone_and_the_thread_lives(held: Held, networks: tuple[Path, Path]) -> None:
    def broken() -> Callable[[NDArray[Any]], NDArray[np.float32]]:
        def run(images: NDArray[Any]) -> NDArray[np.float32]:
            raise RuntimeError("out of order")

        return run

    reports: list[BatchReport] = []

    async def body(batcher: Batcher) -> None:
        held.model.make_runner = broken
        futures = [batcher.submit(job(held.model)) for _ in range(3)]
        results = await asyncio.gather(*futures, return_exceptions=True)
        assert [str(result) for result in results] == ["internal error (RuntimeError)"] * 3
        assert all(report.failed for report in reports)
        healthy = load_model(networks[1], name="m", version="1")
        assert isinstance(await batcher.submit(job(healthy)), Answer)

    with_batcher(body, on_batch=reports.append)
