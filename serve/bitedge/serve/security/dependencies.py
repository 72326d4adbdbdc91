"""What the handlers depend on: the parts of the running service, and the authorization of the matched route."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from fastapi import Depends, Security
from fastapi.security import APIKeyHeader, HTTPBearer
from starlette.requests import ClientDisconnect, Request

from bitedge.serve.api.errors import DeadlineExceededError, ForbiddenError, ServeError
from bitedge.serve.inference.batcher import Batcher
from bitedge.serve.inference.job import Answer, Job
from bitedge.serve.observability.context import Recorder, RequestContext
from bitedge.serve.observability.metrics import Metrics
from bitedge.serve.observability.tracing import Tracing
from bitedge.serve.security.limits import ByteBudget, read_body
from bitedge.serve.security.ratelimit import RateLimiter
from bitedge.serve.settings import ServeSettings

T = TypeVar("T")
WATCH_AFTER = 0.02  # seconds; the connection of a request that is answered sooner is not watched
GRACE_SECONDS = 5.0  # for work that began before its deadline; then the wait ends with 504
INLINE_BYTES = 4096  # a body of this size is parsed on the event loop; a larger one in a thread
KEY_SCHEMES = (  # for the OpenAPI document
    HTTPBearer(auto_error=False, scheme_name="bearer"),
    APIKeyHeader(name="X-API-Key", auto_error=False, scheme_name="header"),
)


class Service:
    """The parts of a running service."""

    def __init__(self, settings: ServeSettings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.registry = settings.registry()
        self.tracing = Tracing(settings.otlp_endpoint) if settings.otlp_endpoint else None
        self.recorder = Recorder(self.metrics, self.tracing, access_log=settings.access_log)
        self.byte_budget = ByteBudget(settings.max_bytes_in_flight)
        self.batcher = Batcher(
            threads=settings.thread_count,
            capacity=settings.queue,
            max_batch=settings.max_batch,
            delay=settings.batch_delay_ms / 1_000,
            limits=settings.image_limits,
            pixels=settings.max_pixels_in_flight,
            on_batch=self.metrics.observe_batch,
            on_drop=lambda reason, count: self.metrics.dropped.labels(reason).inc(count),
            on_pending=self.metrics.pending.set,
        )
        assert settings.run_folder is not None, "what the workers share lies there"
        self.unloaded_folder = settings.run_folder / "unloaded"  # with an empty file for each unloaded model
        self.unloaded_folder.mkdir(parents=True, exist_ok=True)
        rate, burst = settings.rate_limit, settings.rate_burst
        self.limiter = RateLimiter(rate, burst, settings.run_folder / "buckets") if rate else None
        self.keys = settings.key_ring()
        self.keys.current()  # read them now: the file may be gone when the first request comes
        self.parsers, self.admin = ThreadPoolExecutor(2, "parse"), ThreadPoolExecutor(1, "admin")
        self.last_beat = 0.0  # when the event loop last ran its heartbeat (`time.monotonic`)

    def close(self) -> None:
        """End the threads after what is queued, and send the last traces."""
        self.batcher.stop()
        self.parsers.shutdown(wait=False)
        self.admin.shutdown(wait=False)
        if self.tracing is not None:
            self.tracing.close()

    def budget(self, milliseconds: float | None) -> float:
        """Return the seconds until a request's deadline: its own, or the default, within the allowed."""
        wanted = self.settings.deadline_ms if milliseconds is None else milliseconds
        return min(wanted, self.settings.max_deadline_ms) / 1_000

    async def read_body(self, request: Request) -> bytes:
        """Read a request's body within the limits."""
        limit, seconds = self.settings.max_body_bytes, self.settings.body_seconds
        return await read_body(request, limit=limit, seconds=seconds, budget=self.byte_budget)

    async def parse(self, function: Callable[..., T], size: int, *arguments: Any) -> T:
        """Parse a body: in a thread, unless it is small."""
        if size <= INLINE_BYTES:
            return function(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self.parsers, function, *arguments)

    async def run(
        self,
        jobs: Sequence[Job],
        budget: float,
        context: RequestContext,
        disconnected: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> list[Answer | ServeError]:
        """Queue the jobs and wait for all of them; queued images are cancelled when the client disconnects."""
        left = context.started + budget - time.perf_counter()
        self.batcher.check_capacity(sum(job.count for job in jobs), left)
        futures = [self.batcher.submit(job) for job in jobs]
        watchers: list[asyncio.Task[None]] = []

        def watch() -> None:
            if disconnected is not None:
                watchers.append(asyncio.create_task(disconnected()))
                watchers[0].add_done_callback(lambda _: cancel(jobs))

        timer = asyncio.get_running_loop().call_later(WATCH_AFTER, watch)
        try:
            async with asyncio.timeout(budget + GRACE_SECONDS):
                outcomes = [await outcome_of(future) for future in futures]
        except TimeoutError:
            message = f"the work did not end within {budget + GRACE_SECONDS:g} s; retry later"
            raise DeadlineExceededError(message) from None
        except asyncio.CancelledError:
            if any(watcher.done() for watcher in watchers):
                raise ClientDisconnect from None
            raise
        finally:
            timer.cancel()
            for watcher in watchers:
                watcher.cancel()
            cancel(jobs)
        context.answers += [outcome for outcome in outcomes if isinstance(outcome, Answer)]
        return outcomes

    async def change_unloaded(self, name: str, *, load: bool) -> None:
        """Load or unload a model in this worker; the others follow."""
        await asyncio.get_running_loop().run_in_executor(self.admin, self._change_unloaded, name, load)
        if load:
            self.registry.check_loaded(name)

    def _change_unloaded(self, name: str, load: bool) -> None:
        self.registry.check_known(name)
        if load:
            (self.unloaded_folder / name).unlink(missing_ok=True)
            os.utime(self.unloaded_folder)  # the others look at the models again, even if this one was not unloaded
        else:
            (self.unloaded_folder / name).touch()
        self.refresh(retry=load)

    def state(self) -> int:
        """Return a number that changes whenever a worker was told to load or unload a model."""
        return self.unloaded_folder.stat().st_mtime_ns

    def refresh(self, *, retry: bool = False) -> None:
        """Make the registry match what is on disk and what is unloaded; `retry` loads refused files again."""
        self.registry.unloaded = frozenset(path.name for path in self.unloaded_folder.iterdir())
        self.registry.refresh(retry=retry)

    def live(self) -> bool:
        """Whether all inference threads live and make progress."""
        return not self.batcher.stalled(self.settings.stall_seconds)

    def _policy(self, scope: str) -> str:
        return {"metrics": self.settings.metrics, "admin": self.settings.admin}.get(scope, "key")

    def closed(self, scope: str) -> bool:
        """Whether a scope needs an API key."""
        return self.keys.required and self._policy(scope) == "key"

    def authorize(self, scope: str, headers: Mapping[str, str], context: RequestContext) -> None:
        """Check the API key and the rate of a request for a scope."""
        policy = self._policy(scope)
        if policy == "off" or (scope == "admin" and policy == "key" and not self.keys.required):
            raise ForbiddenError(f"{scope} is switched off; start with --{scope} open, or with API keys")
        if scope == "admin" and "origin" in headers and not self.closed("admin"):
            raise ForbiddenError("this may not be called from a web page; use API keys")
        if self.closed(scope):
            kind, _, token = headers.get("authorization", "").partition(" ")
            presented = token.strip() if kind.lower() == "bearer" else headers.get("x-api-key")
            context.caller = self.keys.authorize(presented, scope).name
        if scope == "infer" and self.limiter is not None:
            self.limiter.acquire(context.caller)


async def outcome_of(future: asyncio.Future[Answer]) -> Answer | ServeError:
    """Wait for an answer; errors of requests are results, too."""
    try:
        return await future
    except ServeError as error:
        return error


def cancel(jobs: Sequence[Job]) -> None:
    """Cancel the jobs that are not answered yet."""
    for job in jobs:
        if job.future is not None and not job.future.done():
            job.cancelled = True
            job.future.cancel()


def require(service: Service, scope: str) -> list[Any]:
    """Return the FastAPI dependencies that authorize requests for a scope."""

    async def authorize(request: Request) -> None:
        service.authorize(scope, request.headers, request.scope["bitedge"])

    return [Depends(authorize), *(Security(scheme) for scheme in KEY_SCHEMES if service.closed(scope))]


async def disconnected(request: Request) -> None:
    """Return when the client closes its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
