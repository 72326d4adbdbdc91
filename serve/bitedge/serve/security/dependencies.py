"""What the handlers depend on: the parts of the running service, and the authorization of the matched route."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.requests import Request

from bitedge.serve.api.errors import (
    ClientDisconnectedError,
    DeadlineExceededError,
    ForbiddenError,
    ServeError,
)
from bitedge.serve.inference.batcher import Batcher
from bitedge.serve.inference.job import Answer, Job
from bitedge.serve.models.registry import Registry
from bitedge.serve.models.repository import DesiredState, SharedState
from bitedge.serve.observability.context import Recorder, RequestContext
from bitedge.serve.observability.metrics import Metrics
from bitedge.serve.observability.tracing import Tracing
from bitedge.serve.security.keys import KeyRing
from bitedge.serve.security.limits import ByteBudget, read_body
from bitedge.serve.security.ratelimit import RateLimiter
from bitedge.serve.settings import ServeSettings

log = logging.getLogger("bitedge.serve")

T = TypeVar("T")
WATCH_AFTER = 0.02  # seconds; the connection of a request that is answered sooner is not watched
GRACE_SECONDS = 5.0  # for work that began before its deadline; then the wait ends with 504
APPLY_SECONDS = 20.0  # time for all workers to load or unload a model
INLINE_BYTES = 4096  # a body of this size is parsed on the event loop; a larger one in a thread


@dataclass
class Service:
    """The parts of a running service."""

    settings: ServeSettings
    registry: Registry
    batcher: Batcher
    metrics: Metrics
    keys: KeyRing
    limiter: RateLimiter | None
    tracing: Tracing | None
    recorder: Recorder
    shared: SharedState | None
    byte_budget: ByteBudget
    parsers: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(2, "parse"))
    admin: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "admin"))
    applied: int = 0  # number of the desired state that this worker has applied
    last_beat: float = 0.0  # when the event loop last ran its heartbeat (`time.monotonic`)

    @staticmethod
    def build(settings: ServeSettings) -> Service:
        """Put the parts together; nothing runs yet."""
        metrics = Metrics()
        tracing = Tracing(settings.otlp_endpoint) if settings.otlp_endpoint else None
        folder = settings.run_folder
        batcher = Batcher(
            threads=settings.thread_count,
            capacity=settings.queue,
            max_batch=settings.max_batch,
            delay=settings.batch_delay_ms / 1_000,
            limits=settings.image_limits,
            pixels=settings.max_pixels_in_flight,
            on_batch=metrics.observe_batch,
            on_drop=metrics.observe_drop,
            on_pending=metrics.pending.set,
        )
        limiter = None
        if settings.rate_limit:
            file = folder / "buckets" if folder is not None else None
            limiter = RateLimiter(settings.rate_limit, settings.rate_burst, file)
        text = settings.api_keys.get_secret_value() if settings.api_keys is not None else None
        keys = KeyRing(settings.keys_file, text)
        keys.current()  # read them now: the file may be gone when the first request comes
        return Service(
            settings=settings,
            registry=settings.registry(),
            batcher=batcher,
            metrics=metrics,
            keys=keys,
            limiter=limiter,
            tracing=tracing,
            recorder=Recorder(metrics, tracing, access_log=settings.access_log),
            shared=SharedState(folder) if folder is not None else None,
            byte_budget=ByteBudget(settings.max_bytes_in_flight),
        )

    def budget(self, milliseconds: float | None) -> float:
        """Return the seconds until a request's deadline: its own, or the default, within the allowed."""
        wanted = self.settings.deadline_ms if milliseconds is None else milliseconds
        return min(wanted, self.settings.max_deadline_ms) / 1_000

    async def read_body(self, request: Request) -> bytes:
        """Read a request's body within the limits."""
        settings = self.settings
        return await read_body(
            request, limit=settings.max_body_bytes, seconds=settings.body_seconds, budget=self.byte_budget
        )

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
        self.batcher.check_capacity(sum(job.count for job in jobs), budget)
        loop = asyncio.get_running_loop()
        futures = [self.batcher.submit(job) for job in jobs]
        watcher: asyncio.Task[None] | None = None

        def watch() -> None:
            nonlocal watcher
            if disconnected is not None:
                watcher = loop.create_task(disconnected())
                watcher.add_done_callback(lambda _: cancel(jobs))

        timer = loop.call_later(WATCH_AFTER, watch)
        try:
            async with asyncio.timeout(budget + GRACE_SECONDS):
                outcomes = [await outcome_of(future) for future in futures]
        except TimeoutError:
            message = f"the work did not end within {budget + GRACE_SECONDS:g} s; retry later"
            raise DeadlineExceededError(message) from None
        except asyncio.CancelledError:
            if watcher is not None and watcher.done():
                raise ClientDisconnectedError from None
            raise
        finally:
            timer.cancel()
            if watcher is not None:
                watcher.cancel()
            cancel(jobs)
        context.answers += [outcome for outcome in outcomes if isinstance(outcome, Answer)]
        return outcomes

    async def change_unloaded(self, name: str, *, load: bool) -> None:
        """Load or unload a model in all workers: write the desired state, apply it here, wait for the others."""
        loop = asyncio.get_running_loop()
        number = await loop.run_in_executor(self.admin, self._change_state, name, load)
        if load:
            self.registry.check_loaded(name)
        try:
            async with asyncio.timeout(APPLY_SECONDS):
                while self.shared is not None and not await asyncio.to_thread(self.shared.applied, number):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise DeadlineExceededError(f"{name}: not all workers did this within {APPLY_SECONDS:g} s") from None

    def _change_state(self, name: str, load: bool) -> int:
        self.registry.check_known(name)
        retry = name if load else ""
        if self.shared is None:
            unloaded = self.registry.unloaded - {name} if load else self.registry.unloaded | {name}
            self.registry.refresh(unloaded=unloaded, retry=retry)
            return 0
        with self.shared.locked():
            old = self.shared.read()
            unloaded = old.unloaded - {name} if load else old.unloaded | {name}
            state = DesiredState(old.number + 1, unloaded, retry)
            self.shared.write(state)
        self.apply(state)
        return state.number

    def apply(self, state: DesiredState) -> None:
        """Make the registry match the desired state, and acknowledge that."""
        if state.number > self.applied:
            self.registry.refresh(unloaded=state.unloaded, retry=state.retry)
            self.applied = state.number
        if self.shared is not None:
            self.shared.acknowledge(self.applied)

    def live(self) -> bool:
        """Whether all inference threads live and make progress."""
        return not self.batcher.stalled(self.settings.stall_seconds)

    def closed(self, scope: str) -> bool:
        """Whether a scope needs an API key."""
        policies = {"metrics": self.settings.metrics, "admin": self.settings.admin}
        return self.keys.required and policies.get(scope, "key") == "key"

    def authorize(self, scope: str, headers: Mapping[str, str], context: RequestContext) -> None:
        """Check the API key and the rate of a request for a scope."""
        if scope == "admin":
            self._check_admin(headers)
        if scope == "metrics" and self.settings.metrics == "off":
            raise ForbiddenError("metrics are switched off; start with --metrics open, or with API keys")
        if self.closed(scope):
            context.caller = self.keys.authorize(presented_key(headers), scope).name
        if scope == "infer" and self.limiter is not None:
            self.limiter.acquire(context.caller)

    def _check_admin(self, headers: Mapping[str, str]) -> None:
        policy = self.settings.admin
        if policy == "off" or (policy == "key" and not self.keys.required):
            raise ForbiddenError("models are loaded from their folder; start with --admin open, or with API keys")
        if "origin" in headers and not self.closed("admin"):
            raise ForbiddenError("this may not be called from a web page; use API keys")


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


def presented_key(headers: Mapping[str, str]) -> str | None:
    """Return the key in `Authorization: Bearer` or `X-API-Key`."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    return headers.get("x-api-key") or None


def require(service: Service, scope: str) -> Callable[[Request], Awaitable[None]]:
    """Return the FastAPI dependency that authorizes requests for a scope."""

    async def authorize(request: Request) -> None:
        service.authorize(scope, request.headers, request.scope["bitedge"])

    return authorize


async def disconnected(request: Request) -> None:
    """Return when the client closes its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
