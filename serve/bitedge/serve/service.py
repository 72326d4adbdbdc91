"""The parts of a running service, and the one way through them: accept, queue, wait, answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from bitedge.serve.api.errors import BodyTimeoutError, BodyTooLargeError, ServeError
from bitedge.serve.control import Control
from bitedge.serve.inference.batcher import Batcher
from bitedge.serve.inference.job import Answer, Job
from bitedge.serve.inplace import InPlace
from bitedge.serve.models.backends import ServedModel
from bitedge.serve.models.registry import ModelStore
from bitedge.serve.observability.metrics import Metrics
from bitedge.serve.patience import Patience
from bitedge.serve.security.keys import Key, RateLimiter, load_keys
from bitedge.serve.settings import ServeConfig

WATCH_AFTER = 0.02  # seconds; a request that is answered sooner needs nobody to watch its connection


class ClientGoneError(Exception):
    """The client closed its connection; there is nobody to answer."""


@dataclass
class Service:
    """Everything that a request may need."""

    config: ServeConfig
    store: ModelStore
    batcher: Batcher
    in_place: InPlace
    metrics: Metrics
    keys: tuple[Key, ...]
    limiter: RateLimiter | None
    control: Control
    patience: Patience
    draining: bool = False

    @staticmethod
    def build(config: ServeConfig, store: ModelStore | None = None) -> Service:
        """Put the parts together; nothing runs yet."""
        metrics = Metrics()
        store = store or config.store()
        batcher = Batcher(
            threads=config.thread_count,
            capacity=config.queue,
            max_batch=config.max_batch,
            delay=config.batch_delay_ms / 1_000,
            limits=config.image_limits,
            on_batch=metrics.observe_batch,
            on_drop=metrics.observe_drop,
        )
        in_place = InPlace(
            quick=0.0 if config.batch_delay_ms else config.in_place_us / 1e6,
            max_batch=config.max_batch,
            limits=config.image_limits,
            on_batch=metrics.observe_batch,
        )
        limiter = RateLimiter(config.rate_limit / config.workers, config.rate_burst) if config.rate_limit else None
        keys = load_keys(config.keys_file, config.keys_environment)
        control, patience = Control(config.run_folder, store), Patience(config.body_seconds)
        return Service(config, store, batcher, in_place, metrics, keys, limiter, control, patience)

    def budget(self, milliseconds: float | None) -> float:
        """The seconds that a request may wait: its own wish, or the default, within the allowed."""
        wished = self.config.deadline_ms if milliseconds is None else milliseconds
        return min(wished, self.config.max_deadline_ms) / 1_000

    def job(self, model: ServedModel, data: bytes, started: float, budget: float, top_k: int) -> Job:
        """One image for one model."""
        return Job(model=model, payload=data, deadline=started + budget, top_k=top_k)

    async def run(self, request: Request, jobs: Sequence[Job], budget: float) -> list[Answer | ServeError]:
        """Have the jobs done, in place if there is one and it is slight, and wait for all of them."""
        if len(jobs) == 1 and (future := self.in_place.submit(jobs[0])) is not None:
            return await outcomes_of([future])
        return await self._run_in_threads(request, jobs, budget)

    async def _run_in_threads(self, request: Request, jobs: Sequence[Job], budget: float) -> list[Answer | ServeError]:
        """Queue the jobs and wait; a client that leaves takes its queued jobs along."""
        self.batcher.check_room(sum(job.count for job in jobs), budget)
        loop = asyncio.get_running_loop()
        futures = [self.batcher.submit(job) for job in jobs]
        watcher: asyncio.Task[None] | None = None

        def watch() -> None:
            nonlocal watcher
            watcher = loop.create_task(self._watch(request, jobs))

        timer = loop.call_later(WATCH_AFTER, watch)
        try:
            return await outcomes_of(futures)
        except asyncio.CancelledError:
            if watcher is not None and watcher.done():
                raise ClientGoneError from None
            raise
        finally:
            timer.cancel()
            if watcher is not None:
                watcher.cancel()
            for job in jobs:
                drop(job)

    async def _watch(self, request: Request, jobs: Sequence[Job]) -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        for job in jobs:
            drop(job)

    async def in_thread(self, function: Callable[..., bytes], *arguments: Any) -> bytes:
        """Call a function in a decoder's thread; it counts as one image."""
        return await self.batcher.call(function, *arguments)

    async def off_loop(self, function: Callable[[], bytes]) -> bytes:
        """Call a function that is no image's work and may take milliseconds."""
        return await asyncio.to_thread(function)

    async def read_body(self, request: Request) -> bytes:
        """Read the whole body, within its limits of bytes and of time."""
        task = self.patience.begin()
        try:
            return await self._read_body(request)
        except asyncio.CancelledError:
            if not self.patience.is_late(task) or task.uncancel() > 0:
                raise
            raise BodyTimeoutError(f"the body did not arrive within {self.config.body_seconds:g} s") from None
        finally:
            self.patience.end(task)

    async def _read_body(self, request: Request) -> bytes:
        parts, size, limit = [], 0, self.config.max_body_bytes
        while True:
            message = await request.receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > limit:
                raise too_large(limit)
            if not message.get("more_body", False):
                return parts[0] if len(parts) == 1 else b"".join(parts)


async def outcomes_of(futures: Sequence[asyncio.Future[Answer]]) -> list[Answer | ServeError]:
    """Wait for all; errors of ours are results, too."""
    outcomes: list[Answer | ServeError] = []
    for future in futures:
        try:
            outcomes.append(await future)
        except ServeError as error:
            outcomes.append(error)
    return outcomes


def drop(job: Job) -> None:
    """Let go of a job, if it is not answered yet."""
    if job.future is not None and not job.future.done():
        job.cancelled = True
        job.future.cancel()


def too_large(limit: int) -> BodyTooLargeError:
    """Say how much is allowed."""
    return BodyTooLargeError(f"a request may have {limit} bytes; send a smaller image, or fewer")
