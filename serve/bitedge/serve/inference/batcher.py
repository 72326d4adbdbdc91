"""The bounded queue in front of the core, and the threads that empty it.

One hop from the event loop to a thread and one back. A thread takes whatever waits, up to `max_batch` images, decodes
it, runs it and reports the whole batch with a single call into the loop: batches form by themselves while the threads
are busy, and a lone request never waits for company (unless `batch_delay_ms` asks for that). A batch ends before it
holds up the queue: networks that take long per image run in small batches, which cost them nothing.

Everything that counts (how much is pending, how fast it leaves) is touched by the event loop only, so it needs no lock.
A job that expired, that would be late, or whose client left, is dropped before it is decoded.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from bitedge.serve.api.errors import ServeError, ShedError
from bitedge.serve.inference.job import (
    Answer,
    BatchReport,
    Contexts,
    Job,
    Outcome,
    answer_futures,
    group_by_model,
    run_group,
    too_late,
)
from bitedge.serve.inference.preprocessing import ImageLimits, open_image, prepare
from bitedge.serve.inference.throughput import ServiceRate

BATCH_SECONDS = 0.05  # a batch should not take longer
HEADROOM = 0.5  # of its deadline that a request may expect to wait: rates change, and the rest is for the work itself
INLINE_PIXELS = 512 * 512  # larger images are decoded apart, so that they hold up no batch


class Batcher:
    """Takes jobs from the event loop and answers each exactly once."""

    def __init__(
        self,
        *,
        threads: int,
        capacity: int,
        max_batch: int,
        delay: float,
        limits: ImageLimits,
        on_batch: Callable[[BatchReport], None] = lambda _: None,
        on_drop: Callable[[str, int], None] = lambda *_: None,
    ) -> None:
        self.capacity = capacity
        self.pending = 0
        self.rate = ServiceRate(max(1, threads))
        self._max_batch = max_batch
        self._delay = delay
        self._limits = limits
        self._on_batch = on_batch
        self._on_drop = on_drop
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._decoders = ThreadPoolExecutor(max(1, threads), thread_name_prefix="decode")
        self._threads = [threading.Thread(target=self._work, name=f"infer-{i}", daemon=True) for i in range(threads)]

    def start(self) -> None:
        """Start the threads; call it on the event loop that will submit."""
        self._loop = asyncio.get_running_loop()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the threads after what is queued."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._decoders.shutdown()

    def check_room(self, count: int = 1, budget: float | None = None) -> None:
        """Refuse work that does not fit, or that could not be begun in time at the present rate."""
        if self.pending + count > self.capacity:
            raise ShedError(
                f"the queue is full ({self.pending} of {self.capacity} images); come back later",
                reason="queue_full",
                retry_after=self.rate.seconds_for(self.pending),
            )
        if budget is None:
            return
        wait = self.rate.seconds_for(self.pending)
        if wait > HEADROOM * budget:
            raise ShedError(
                f"{self.pending} images wait, about {wait:.2f} s, and the deadline is {budget:.2f} s; come back later",
                reason="deadline_unreachable",
                retry_after=wait,
            )

    def submit(self, job: Job) -> asyncio.Future[Answer]:
        """Queue a job; cancelling the future drops it, if it has not begun."""
        assert self._loop is not None, "start() comes first"
        self.check_room(job.count)
        self.pending += job.count
        job.future = future = self._loop.create_future()
        self._jobs.put(job)
        return future

    async def call(self, function: Callable[..., bytes], *arguments: Any) -> bytes:
        """Run other work on images (a preview) in the decoders' threads, within the same bound."""
        assert self._loop is not None, "start() comes first"
        self.check_room()
        self.pending += 1
        try:
            return await self._loop.run_in_executor(self._decoders, function, *arguments)
        finally:
            self.pending -= 1

    def _work(self) -> None:
        contexts = Contexts()
        while True:
            jobs = self._take()
            if jobs is None:
                return
            begun = time.perf_counter()
            ready, outcomes = self._prepare(jobs)
            reports = []
            for group in group_by_model(ready, self._max_batch):
                answers, report = run_group(group, contexts)
                outcomes += answers
                reports.append(report)
            if outcomes:
                assert self._loop is not None
                worked = time.perf_counter() - begun + sum(job.apart for job in ready)
                self._loop.call_soon_threadsafe(self._settle, outcomes, reports, worked)

    def _take(self) -> list[Job] | None:
        """Wait for one job, then take what else is there."""
        first = self._jobs.get()
        if first is None:
            return None
        jobs, images = [first], first.count
        until = time.perf_counter() + self._delay if self._delay else 0.0
        most = batch_limit(first.model.pace, self._max_batch)
        while images < most:
            try:
                left = until - time.perf_counter() if until else 0.0
                job = self._jobs.get(timeout=left) if left > 0 else self._jobs.get_nowait()
            except queue.Empty:
                break
            if job is None:
                self._jobs.put(None)  # stop() counts one for each thread
                break
            jobs.append(job)
            images += job.count
        return jobs

    def _prepare(self, jobs: list[Job]) -> tuple[list[Job], list[Outcome]]:
        """Drop what nobody waits for any more, decode the rest."""
        ready: list[Job] = []
        outcomes: list[Outcome] = []
        expected = sum(job.model.pace * job.count for job in jobs)
        for job in jobs:
            if job.cancelled:
                outcomes.append((job, asyncio.CancelledError()))
            elif time.perf_counter() + expected > job.deadline:
                job.model.pace *= 0.9  # lest one slow moment condemn all that follows, unmeasured
                outcomes.append((job, too_late(job)))
            elif job.tensor is not None or isinstance(job.payload, np.ndarray):
                job.tensor = job.payload if isinstance(job.payload, np.ndarray) else job.tensor
                ready.append(job)
            else:
                try:
                    if self._decode(job, job.payload):
                        ready.append(job)
                except ServeError as error:
                    outcomes.append((job, error))
        return ready, outcomes

    def _decode(self, job: Job, data: bytes) -> bool:
        """Decode a small image here and now; send a large one to the decoders and return False."""
        begun = time.perf_counter()
        image = open_image(data, self._limits)
        if image.width * image.height > INLINE_PIXELS:
            self._decoders.submit(self._decode_large, job, data)
            return False
        job.tensor = prepare(image, job.model.geometry, self._limits)[None]
        job.decode = time.perf_counter() - begun
        return True

    def _decode_large(self, job: Job, data: bytes) -> None:
        begun = time.perf_counter()
        outcome: BaseException | None = None
        if not job.cancelled:
            try:
                job.tensor = prepare(open_image(data, self._limits), job.model.geometry, self._limits)[None]
                job.decode = job.apart = time.perf_counter() - begun
            except BaseException as error:
                outcome = error
        if outcome is None:
            self._jobs.put(job)
        else:
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._settle, [(job, outcome)], [], 0.0)

    def _settle(self, outcomes: Sequence[Outcome], reports: Sequence[BatchReport], worked: float) -> None:
        """On the event loop: hand out the answers of a batch, and count."""
        self.pending -= sum(job.count for job, _ in outcomes)
        self.rate.worked(sum(job.count for job, outcome in outcomes if isinstance(outcome, Answer)), worked)
        for report in reports:
            self._on_batch(report)
        for _, outcome in outcomes:
            if isinstance(outcome, ShedError):
                outcome.retry_after = self.rate.seconds_for(self.pending)
        if left := answer_futures(outcomes):
            self._on_drop("disconnected", left)


def batch_limit(pace: float, most: int) -> int:
    """How many images of a network make a batch of about `BATCH_SECONDS`, at least one and at most `most`."""
    return most if pace * most <= BATCH_SECONDS else max(1, int(BATCH_SECONDS / pace))
