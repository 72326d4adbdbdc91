"""Health, metrics, the page and the documentation."""

from __future__ import annotations

import asyncio
from importlib import resources

from fastapi import APIRouter, Depends, Response

from bitedge.serve.api.classify import JsonResponse
from bitedge.serve.api.errors import UnknownModelError
from bitedge.serve.api.schemas import Health, Responses, errors
from bitedge.serve.observability.metrics import CONTENT_TYPE
from bitedge.serve.security.dependencies import Service, require

STATIC_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
TEXT: Responses = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
UNHEALTHY: Responses = {503: {"model": Health, "description": "Not so."}}


def routes(service: Service) -> APIRouter:
    """Return the routes of health and metrics."""
    router = APIRouter(tags=["operations"])

    async def live() -> Response:
        state = health(service)
        return JsonResponse(state, 200 if state["live"] else 503)

    async def ready() -> Response:
        state = health(service)
        return JsonResponse(state, 200 if state["ready"] else 503)

    for path, call, summary in (
        ("/healthz", live, "Alive: all threads make progress"),
        ("/readyz", ready, "Ready: a model can be served"),
        ("/v2/health/live", live, "Server liveness"),
        ("/v2/health/ready", ready, "Server readiness"),
    ):
        router.add_api_route(path, call, summary=summary, response_model=Health, responses=UNHEALTHY)

    @router.get(
        "/metrics",
        summary="Prometheus metrics",
        response_model=None,
        responses={**TEXT, **errors(401, 403)},
        dependencies=[Depends(require(service, "metrics"))],
        openapi_extra={"x-scope": "metrics"},
    )
    async def metrics() -> Response:
        return Response(await asyncio.to_thread(service.metrics.exposition), media_type=CONTENT_TYPE)

    return router


def health(service: Service) -> dict[str, bool]:
    """Return liveness and readiness; clients of the Open Inference Protocol read either from one body."""
    live = service.live()
    return {"live": live, "ready": live and service.registry.ready}


def page_routes(service: Service) -> APIRouter:
    """Return the routes of the page, its files and the documentation; they need nothing from outside, and no key."""
    router = APIRouter(include_in_schema=False)

    @router.get("/docs")
    async def docs() -> Response:
        return static_file("docs.html")

    if service.settings.page:

        @router.get("/")
        async def page() -> Response:
            return static_file("index.html")

    @router.get("/static/{name}")
    async def static(name: str) -> Response:
        return static_file(name)

    return router


def static_file(name: str) -> Response:
    """Return a file of the `page` folder, found by its name in the list and not by a path."""
    found = {file.name: file for file in (resources.files("bitedge.serve") / "page").iterdir()}.get(name)
    suffix = "." + name.rpartition(".")[2]
    if found is None or suffix not in STATIC_TYPES:
        raise UnknownModelError("there is no such file")
    return Response(found.read_bytes(), media_type=STATIC_TYPES[suffix], headers={"cache-control": "no-cache"})
