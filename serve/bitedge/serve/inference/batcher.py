"""The bounded queue in front of the models, and the threads that empty it.

One thread switch from the event loop and one back. A thread takes what waits, up to `max_batch` images, decodes it,
runs it and reports the whole batch with a single call into the loop. Batches form while the threads are busy; a lone
request does not wait for others unless `delay` asks for that. A batch takes about `BATCH_SECONDS` at most.

The number of pending images and the throughput are touched by the event loop only, so they need no lock. A job that
expired, that would be late, or whose client disconnected, is dropped before it is decoded. Whatever a job raises is
its own outcome: the threads never end before `stop`.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from bitedge.serve.api.errors import InternalError, ServeError, ShedError
from bitedge.serve.inference.job import Answer, BatchReport, Job, Outcome, group_by_model, run_group
from bitedge.serve.inference.preprocessing import ImageLimits, open_image, prepare
from bitedge.serve.inference.throughput import ThroughputEstimator
from bitedge.serve.security.limits import PixelBudget

log = logging.getLogger("bitedge.serve.error")

BATCH_SECONDS = 0.05
HEADROOM = 0.5  # share of its deadline that a request may expect to wait; the rest is for the work itself
INLINE_PIXELS = 512 * 512  # larger images are decoded in other threads, so that they hold up no batch


class Batcher:
    """Takes jobs from the event loop and resolves the future of each exactly once."""

    def __init__(
        self,
        *,
        threads: int,
        capacity: int,
        max_batch: int,
        delay: float,
        limits: ImageLimits,
        pixels: int = 24_000_000,
        on_batch: Callable[[BatchReport], None] = lambda _: None,
        on_drop: Callable[[str, int], None] = lambda *_: None,
        on_pending: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.capacity = capacity
        self.throughput = ThroughputEstimator(max(1, threads))
        self.pending = 0  # images that wait or run
        self.lag = 0.0  # seconds that the event loop is late now; an answer waits for it, too
        self._max_batch = max_batch
        self._delay = delay
        self._limits = limits
        self._pixels = PixelBudget(pixels)
        self._on_batch, self._on_drop, self._on_pending = on_batch, on_drop, on_pending
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._decoders = ThreadPoolExecutor(max(1, threads), thread_name_prefix="decode")
        self._threads = [
            threading.Thread(target=self._work, args=(i,), name=f"infer-{i}", daemon=True) for i in range(threads)
        ]
        self._busy_since = [0.0] * threads  # when each thread took the batch that it works on; 0: it waits

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

    def stalled(self, seconds: float) -> bool:
        """Whether a thread has ended, or has worked on one batch for longer than this."""
        now = time.perf_counter()
        busy = any(since and now - since > seconds for since in self._busy_since)
        return busy or (self._loop is not None and not all(thread.is_alive() for thread in self._threads))

    def _change_pending(self, count: int) -> None:
        self.pending += count
        self._on_pending(self.pending)

    def check_capacity(self, count: int = 1, budget: float | None = None) -> None:
        """Refuse work that does not fit, or that could not begin in time at the present throughput."""
        if count > self.capacity:
            raise ServeError(f"expected at most {self.capacity} images, the size of the queue, got {count}; send fewer")
        wait = self.throughput.seconds_for(self.pending)
        if self.pending + count > self.capacity:
            message = f"the queue is full ({self.pending} of {self.capacity} images); retry later"
            raise ShedError(message, reason="queue_full", retry_after=wait)
        if budget is not None and wait + 2 * self.lag > HEADROOM * budget:
            message = f"{self.pending} images wait, about {wait:.2f} s; the deadline is in {budget:.2f} s; retry later"
            raise ShedError(message, reason="deadline_unreachable", retry_after=wait)

    def submit(self, job: Job) -> asyncio.Future[Answer]:
        """Queue a job; cancelling the future drops it, if it has not begun."""
        assert self._loop is not None, "start() comes first"
        self.check_capacity(job.count)
        self._change_pending(job.count)
        job.future = future = self._loop.create_future()
        self._jobs.put(job)
        return future

    async def call(self, function: Callable[..., bytes], *arguments: Any) -> bytes:
        """Run other work on an image (a preview) in the decoder threads, within the same bound."""
        assert self._loop is not None, "start() comes first"
        self.check_capacity()
        self._change_pending(1)
        work = self._loop.run_in_executor(self._decoders, function, *arguments)
        work.add_done_callback(lambda _: self._change_pending(-1))
        return await asyncio.shield(work)  # it goes on, and counts, when nobody waits for it any more

    def _work(self, number: int) -> None:
        while True:
            jobs = self._take()
            if jobs is None:
                return
            self._busy_since[number] = time.perf_counter()
            self._run(jobs)
            self._busy_since[number] = 0.0
            del jobs  # an idle thread keeps no model in memory

    def _run(self, jobs: list[Job]) -> None:
        begun = time.perf_counter()
        outcomes: list[Outcome] = []
        reports: list[BatchReport] = []
        worked = 0.0
        try:
            ready = self._prepare(jobs, outcomes)
            for group in group_by_model(ready, self._max_batch):
                answers, report = run_group(group)
                outcomes += answers
                reports.append(report)
            worked = time.perf_counter() - begun + sum(job.decode for job in ready if job.decoded_apart)
        except BaseException as error:  # a fault of ours: these jobs fail, the thread goes on
            done = {id(job) for job, _ in outcomes}
            handed_over = {id(job) for job in jobs if job.decoded_apart and job.tensor is None}  # to the decoders
            outcomes += [(job, error) for job in jobs if id(job) not in done | handed_over]
        if outcomes:
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._settle, outcomes, reports, worked)

    def _take(self) -> list[Job] | None:
        """Wait for one job, then take what else is there."""
        first = self._jobs.get()
        if first is None:
            return None
        jobs, images = [first], first.count
        until = time.perf_counter() + self._delay if self._delay else 0.0
        most = batch_limit(first.model.seconds_per_image, self._max_batch)
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

    def _prepare(self, jobs: list[Job], outcomes: list[Outcome]) -> list[Job]:
        """Drop what nobody waits for any more, decode the rest."""
        ready: list[Job] = []
        expected = sum(job.model.seconds_per_image * job.count for job in jobs)
        for job in jobs:
            if job.cancelled:
                outcomes.append((job, asyncio.CancelledError()))
            elif time.perf_counter() + expected + 2 * self.lag > job.deadline:
                job.model.seconds_per_image *= 0.9  # one slow measurement must not refuse everything that follows
                waited = time.perf_counter() - job.created
                message = f"the deadline cannot be met after {waited:.3f} s in the queue; retry later"
                outcomes.append((job, ShedError(message, reason="deadline")))
            else:
                try:
                    if self._decode(job):
                        ready.append(job)
                except Exception as error:
                    outcomes.append((job, error))
        return ready

    def _decode(self, job: Job) -> bool:
        """Decode a small image here; send a large one to the decoder threads and return False."""
        if job.tensor is None and isinstance(job.payload, np.ndarray):
            job.tensor = job.payload
        if job.tensor is not None:
            return True
        assert isinstance(job.payload, bytes)
        begun = time.perf_counter()
        image = open_image(job.payload, self._limits)
        if image.width * image.height > INLINE_PIXELS:
            job.decoded_apart = True
            self._decoders.submit(self._decode_large, job, job.payload, image.width * image.height)
            return False
        job.tensor = prepare(image, job.model.geometry, self._limits)[None]
        job.decode = time.perf_counter() - begun
        return True

    def _decode_large(self, job: Job, data: bytes, pixels: int) -> None:
        try:
            with self._pixels.reserve(pixels, job.deadline):
                if job.cancelled:
                    raise asyncio.CancelledError
                begun = time.perf_counter()
                job.tensor = prepare(open_image(data, self._limits), job.model.geometry, self._limits)[None]
                job.decode = time.perf_counter() - begun
            self._jobs.put(job)
        except BaseException as error:
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._settle, [(job, error)], [], 0.0)

    def _settle(self, outcomes: Sequence[Outcome], reports: Sequence[BatchReport], worked: float) -> None:
        """On the event loop: hand out the answers of a batch, and count."""
        self._change_pending(-sum(job.count for job, _ in outcomes))
        self.throughput.add(sum(job.count for job, outcome in outcomes if isinstance(outcome, Answer)), worked)
        for report in reports:
            self._on_batch(report)
        for job, outcome in outcomes:
            assert job.future is not None
            if job.future.done():
                self._on_drop("disconnected", job.count)
            elif isinstance(outcome, Answer):
                job.future.set_result(outcome)
            elif isinstance(outcome, asyncio.CancelledError):
                job.future.cancel()
            else:
                job.future.set_exception(self._as_error(outcome))

    def _as_error(self, error: BaseException) -> ServeError:
        """Turn what a thread raised into what a client is told."""
        if isinstance(error, ShedError):
            error.retry_after = self.throughput.seconds_for(self.pending)
        if isinstance(error, ServeError):
            return error
        if isinstance(error, MemoryError):
            return ShedError("there is not enough memory for this request now; retry later", reason="memory")
        log.error("a job failed", exc_info=error)
        return InternalError(f"internal error ({type(error).__name__})")


def batch_limit(seconds_per_image: float, most: int) -> int:
    """How many images make a batch of about `BATCH_SECONDS`, at least one and at most `most`."""
    return most if seconds_per_image * most <= BATCH_SECONDS else max(1, int(BATCH_SECONDS / seconds_per_image))
