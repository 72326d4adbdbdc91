"""Build the application from its settings."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import metadata

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from PIL import Image
from starlette.exceptions import HTTPException

from bitedge.serve.api import classify, health, oip, repository, schemas
from bitedge.serve.api.classify import JsonResponse
from bitedge.serve.api.errors import ServeError
from bitedge.serve.models.registry import Event
from bitedge.serve.observability.context import RequestContext, RequestMiddleware
from bitedge.serve.security.dependencies import Service
from bitedge.serve.settings import ServeSettings

log = logging.getLogger("bitedge.serve")

DESCRIPTION = (
    "Classifies images with binarized networks. `POST /v1/classify` takes an image; "
    "`/v2` speaks the Open Inference Protocol. "
    'Every error is `{"error": "..."}`.'
)
VERSION = metadata.version("bitedge")
STATE_SECONDS = 0.2  # how often a worker looks at what the others were told
BEAT_SECONDS = 0.1
RESTART_SECONDS = 1.0  # pause before a failed background task begins again


def create_app(settings: ServeSettings, service: Service | None = None) -> RequestMiddleware:
    """Build the application; models are loaded when it starts."""
    service = service or Service(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with running(service):
            yield

    app = FastAPI(
        title="bitedge",
        version=VERSION,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        root_path=settings.root_path,
        servers=[{"url": settings.root_path}] if settings.root_path else None,
        responses=schemas.ERRORS,
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    for kind in (ServeError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, answer_error)
    for routes in (classify.routes, oip.routes, repository.routes, health.routes):
        app.include_router(routes(service))
    health.add_page(app, service)
    return RequestMiddleware(app, service.recorder)


@asynccontextmanager
async def running(service: Service) -> AsyncIterator[None]:
    """Run the threads and the background tasks as long as the service serves."""

    def on_model_event(event: Event) -> None:
        service.metrics.observe_event(event, service.registry.entries())
        fields = {"model": event.name, "version": event.version, "error": event.error}
        log.log(logging.ERROR if event.error else logging.INFO, f"model {event.kind}", extra=fields)

    service.registry.on_event = on_model_event
    await asyncio.to_thread(Image.init)  # the plugins, before the first request has to wait for them
    await asyncio.to_thread(load_models, service)
    service.batcher.start()
    tasks = [asyncio.create_task(supervise(service, task)) for task in (poll_models, beat)]
    async with AsyncExitStack() as stack:
        if service.settings.grpc_port is not None:
            from bitedge.serve.api.grpc import serving_grpc

            await stack.enter_async_context(serving_grpc(service, VERSION))
        yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.to_thread(service.close)


def load_models(service: Service) -> None:
    """Load the models for the first time; a worker that finds none starts all the same, and is not ready."""
    try:
        service.refresh()
    except (ServeError, OSError) as error:
        log.error("the models cannot be loaded", extra={"error": str(error)})


async def supervise(service: Service, task: Callable[[Service], Awaitable[None]]) -> None:
    """Run a background task; whatever it raises is logged, and it begins again."""
    while True:
        try:
            await task(service)
            return
        except Exception as error:
            log.error("a background task failed", exc_info=error, extra={"task": task.__name__})
            await asyncio.sleep(RESTART_SECONDS)


async def poll_models(service: Service) -> None:
    """Look for new and changed models, and for what other workers were told to load or unload."""
    period = service.settings.poll_seconds or math.inf
    state, refreshed = service.state(), time.monotonic()
    while True:
        await asyncio.sleep(min(STATE_SECONDS, period))
        changed = service.state() != state
        if changed or time.monotonic() - refreshed >= period:
            state, refreshed = service.state(), time.monotonic()
            refresh = functools.partial(service.refresh, retry=changed)
            await asyncio.get_running_loop().run_in_executor(service.admin, refresh)


async def beat(service: Service) -> None:
    """Show the watchdog that the event loop runs, and the batcher how late it is."""
    while True:
        service.last_beat = time.monotonic()
        await asyncio.sleep(BEAT_SECONDS)
        late = time.monotonic() - service.last_beat - BEAT_SECONDS
        service.batcher.lag = max(late, 0.5 * service.batcher.lag)


async def answer_error(request: Request, error: Exception) -> Response:
    """Answer an error of the request, a refusal, or a fault of ours, which the middleware logs."""
    context: RequestContext = request.scope["bitedge"]
    if isinstance(error, ServeError):
        context.reason = error.reason
        return JsonResponse({"error": str(error)}, error.status, error.headers())
    if isinstance(error, HTTPException):  # Starlette's own: no such path, no such method
        return JsonResponse({"error": str(error.detail)}, error.status_code, dict(error.headers or {}))
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        return JsonResponse({"error": f"{where}: {first['msg']}, got {str(first.get('input'))[:80]!r}"}, 400)
    context.reason = "internal"
    message = f"internal error ({type(error).__name__}); request id {context.request_id}"
    return JsonResponse({"error": message}, 500)
