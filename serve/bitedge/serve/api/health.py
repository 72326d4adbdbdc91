"""Health, metrics, the page and the documentation."""

from __future__ import annotations

import asyncio
from importlib import resources
from pathlib import Path

from fastapi import APIRouter, FastAPI, Response
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles

from bitedge.serve.api.classify import JsonResponse
from bitedge.serve.api.schemas import Health, Responses
from bitedge.serve.observability.metrics import CONTENT_TYPE
from bitedge.serve.security.dependencies import Service, require

PAGE = Path(str(resources.files("bitedge.serve") / "page"))
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
        responses=TEXT,
        dependencies=require(service, "metrics"),
    )
    async def metrics() -> Response:
        return Response(await asyncio.to_thread(service.metrics.exposition), media_type=CONTENT_TYPE)

    return router


def health(service: Service) -> dict[str, bool]:
    """Return liveness and readiness; clients of the Open Inference Protocol read either from one body."""
    live = service.live()
    return {"live": live, "ready": live and service.registry.ready}


def add_page(app: FastAPI, service: Service) -> None:
    """Add the page and the documentation; their static files need no key, because a key is typed in there."""

    async def openapi() -> Response:
        return JsonResponse(app.openapi())

    keyed = require(service, "infer")
    app.add_api_route("/openapi.json", openapi, include_in_schema=False, dependencies=keyed)
    app.mount("/static", StaticFiles(directory=PAGE))
    app.add_api_route("/docs", lambda: FileResponse(PAGE / "docs.html"), include_in_schema=False)
    if service.settings.page:
        app.add_api_route("/", lambda: FileResponse(PAGE / "index.html"), include_in_schema=False)
