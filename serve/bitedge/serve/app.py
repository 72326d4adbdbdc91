"""Build the HTTP application from its configuration."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import metadata

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from bitedge.serve import openapi
from bitedge.serve.access import closed_scopes
from bitedge.serve.answers import json_response
from bitedge.serve.api import classify, health, oip
from bitedge.serve.api.errors import ServeError
from bitedge.serve.gate import Gate, error_headers, internal_message
from bitedge.serve.inference.preprocessing import warm_up
from bitedge.serve.models.registry import Event, ModelStore
from bitedge.serve.service import Service
from bitedge.serve.settings import ServeConfig

log = logging.getLogger("bitedge.serve")

DESCRIPTION = (
    "Classifies images with binarized networks. `POST /v1/classify` takes an image; "
    "`/v2` speaks the Open Inference Protocol. "
    'Every error is `{"error": "..."}`.'
)


def version() -> str:
    """The version of bitedge that serves."""
    try:
        return metadata.version("bitedge")
    except metadata.PackageNotFoundError:
        return "0"


def create_app(config: ServeConfig, store: ModelStore | None = None) -> Gate:
    """Build the application; models are loaded when it starts, unless a loaded store is given."""
    service = Service.build(config, store)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with running(service):
            yield

    app = FastAPI(
        title="bitedge",
        version=version(),
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False},
    )
    classifying, direct = classify.routes(service)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(RequestValidationError, validation_error)
    app.add_exception_handler(ServeError, serve_error)
    app.add_exception_handler(Exception, internal_error)
    for router in (
        classifying,
        oip.routes(service),
        health.routes(service),
        health.page_routes(service),
    ):
        app.include_router(router)
    app.openapi = lambda: openapi.complete(app, closed=closed_scopes(service))  # type: ignore[method-assign]
    return Gate(app, service, direct)


@asynccontextmanager
async def running(service: Service) -> AsyncIterator[None]:
    """Run the threads, the look-out for new versions and the orders of other workers, as long as the service serves."""

    def tell(event: Event) -> None:
        service.metrics.observe_event(event)
        service.metrics.set_models(service.store.entries())
        fields = {"model": event.name, "version": event.version, "error": event.error}
        log.log(logging.ERROR if event.error else logging.INFO, f"model {event.kind}", extra=fields)

    service.store.on_event = tell
    service.control.enter()
    await asyncio.to_thread(warm_up)
    await asyncio.to_thread(service.store.refresh)
    service.metrics.set_models(service.store.entries())
    for part in (service.batcher, service.in_place, service.patience):
        part.start()
    tasks = [asyncio.create_task(service.control.follow()), asyncio.create_task(look_out(service))]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(service.batcher.stop)


async def look_out(service: Service) -> None:
    """Look at the model folder from time to time."""
    while service.config.poll_seconds:
        await asyncio.sleep(service.config.poll_seconds)
        try:
            await asyncio.to_thread(service.store.refresh)
        except (ServeError, OSError) as error:  # the folder itself is away; what serves goes on serving
            log.error("the model folder cannot be read", extra={"error": str(error)})


async def http_error(_: Request, error: Exception) -> Response:
    """Starlette's own errors (no such path, no such method) in our shape."""
    assert isinstance(error, HTTPException)
    response = json_response({"error": str(error.detail)}, dict(error.headers or {}))
    response.status_code = error.status_code
    return response


async def serve_error(request: Request, error: Exception) -> Response:
    """An error of ours, raised behind the framework's routing."""
    assert isinstance(error, ServeError)
    request.scope["bitedge"].reason = error.reason
    response = json_response({"error": str(error)}, dict(error_headers(error)))
    response.status_code = error.status
    return response


async def internal_error(request: Request, error: Exception) -> Response:
    """A fault of ours; the gate logs it."""
    response = json_response({"error": internal_message(error, request.scope["bitedge"].request_id)})
    response.status_code = 500
    return response


async def validation_error(_: Request, error: Exception) -> Response:
    """A parameter that is not what it should be."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:])
    response = json_response({"error": f"{where}: {first['msg']}, got {str(first.get('input'))[:80]!r}"})
    response.status_code = 400
    return response
