from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from starlette.testclient import TestClient
from tests.serve.pictures import encoded, pixels, png

from bitedge.serve.api.errors import ImageError, ShedError
from bitedge.serve.inference.job import Answer, BatchReport, Job
from bitedge.serve.inference.preprocessing import ImageLimits
from bitedge.serve.inplace import DECODE_SECONDS, GATHER_SECONDS, InPlace
from bitedge.serve.models.backends import ServedModel, load_model

QUICK = 1.0  # seconds: whatever the machine is busy with, the networks of these tests are faster


@pytest.fixture
def model(networks: tuple[Path, Path]) -> ServedModel:
    return load_model(networks[0], name="m", version="1")


def job(model: ServedModel, payload: bytes | NDArray[Any], *, seconds: float = 60.0, count: int = 1) -> Job:
    return Job(model=model, payload=payload, deadline=time.perf_counter() + seconds, count=count, top_k=3)


def on_loop(body: Callable[[InPlace], Awaitable[None]], **options: Any) -> list[BatchReport]:
    reports: list[BatchReport] = []

    async def main() -> None:
        settings = {"quick": QUICK, "max_batch": 8, "limits": ImageLimits(), "on_batch": reports.append, **options}
        in_place = InPlace(**settings)
        in_place.start()
        await asyncio.wait_for(body(in_place), 60)

    asyncio.run(main())
    return reports


async def answer(job: Job) -> Answer:
    assert isinstance(job.future, asyncio.Future)
    result: Answer = await job.future
    return result


def test_jobs_of_neighbouring_turns_run_together_on_the_loop_and_each_gets_its_own_answer(model: ServedModel) -> None:
    expected = model.context()(np.stack([pixels(seed) for seed in range(12)]))
    threads: set[str] = set()
    inner = model.context

    def context() -> Callable[[NDArray[Any]], NDArray[np.float32]]:
        run = inner()

        def noted(images: NDArray[Any]) -> NDArray[np.float32]:
            threads.add(threading.current_thread().name)
            return run(images)

        return noted

    model.context = context

    async def body(in_place: InPlace) -> None:
        jobs = [job(model, png(seed) if seed % 3 else pixels(seed)[None]) for seed in range(12)]
        assert all(in_place.submit(one) for one in jobs[:5])
        await asyncio.sleep(0)  # one turn of the loop
        assert all(in_place.submit(one) for one in jobs[5:])
        answers = [await answer(one) for one in jobs]
        assert [one.batch_size for one in answers] == [8] * 8 + [4] * 4
        for seed, one in enumerate(answers):
            np.testing.assert_allclose(one.outputs[0], expected[seed], rtol=1e-6)
            assert [index for index, _ in one.best] == np.argsort(-expected[seed], kind="stable")[:3].tolist()

    reports = on_loop(body)
    assert [report.images for report in reports] == [8, 4]
    assert threads == {threading.main_thread().name}


def test_what_is_slow_large_or_switched_off_belongs_to_the_threads(model: ServedModel) -> None:
    async def body(in_place: InPlace) -> None:
        assert not in_place.submit(job(model, png(0, 200, 200)))
        assert not in_place.submit(job(model, encoded(pixels(), "JPEG")))
        assert not in_place.submit(job(model, np.zeros((4, 32, 32, 3), np.uint8), count=round(QUICK / model.pace) + 1))
        slow = load_model_with_pace(model, 2 * QUICK)
        assert not in_place.submit(job(slow, png()))

    async def off(in_place: InPlace) -> None:
        assert not in_place.submit(job(model, png()))

    on_loop(body)
    on_loop(off, quick=0.0)


def load_model_with_pace(model: ServedModel, pace: float) -> ServedModel:
    model.pace = pace
    return model


def test_only_so_much_is_gathered_and_then_it_begins_anew(model: ServedModel) -> None:
    async def body(in_place: InPlace) -> None:
        model.pace = 1e-3
        jobs = [job(model, png()) for _ in range(40)]
        taken = [one for one in jobs if in_place.submit(one)]
        assert len(taken) == int(GATHER_SECONDS / (1e-3 + DECODE_SECONDS)) + 1
        for one in taken:
            await answer(one)
        again = job(model, png())
        assert in_place.submit(again)
        await answer(again)

    on_loop(body)


def test_a_damaged_image_and_a_late_job_harm_nobody_else(model: ServedModel) -> None:
    async def body(in_place: InPlace) -> None:
        data = bytearray(png())
        data[60] ^= 0xFF
        bad, good, late = job(model, bytes(data)), job(model, png()), job(model, png(), seconds=-1.0)
        assert all(in_place.submit(one) for one in (bad, good, late))
        with pytest.raises(ImageError, match="cannot be decoded"):
            await answer(bad)
        with pytest.raises(ShedError, match="deadline cannot be kept"):
            await answer(late)
        assert (await answer(good)).batch_size == 1

    on_loop(body)


def test_a_network_that_fails_answers_everyone(model: ServedModel) -> None:
    def broken(images: NDArray[Any]) -> NDArray[np.float32]:
        raise RuntimeError("out of order")

    async def body(in_place: InPlace) -> None:
        model.context = lambda: broken
        jobs = [job(model, png()) for _ in range(3)]
        assert all(in_place.submit(one) for one in jobs)
        results = await asyncio.gather(*(answer(one) for one in jobs), return_exceptions=True)
        assert [str(result) for result in results] == ["out of order"] * 3

    assert all(report.failed for report in on_loop(body))


def test_the_answer_is_the_same_with_and_without_a_thread(make_client: Callable[..., TestClient]) -> None:
    clients = [make_client(in_place_us=value) for value in (10_000.0, 0.0)]
    for seed in range(5):
        first, second = (client.post("/v1/classify", content=png(seed)).json() for client in clients)
        assert first["predictions"] == second["predictions"]
