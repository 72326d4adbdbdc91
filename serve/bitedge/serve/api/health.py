"""For those who run the service and those who look at it: health, metrics, the page, the offline documentation."""

from __future__ import annotations

from importlib import resources

from fastapi import APIRouter, Response

from bitedge.serve.answers import json_response
from bitedge.serve.api.errors import ForbiddenError, UnknownModelError
from bitedge.serve.api.schemas import Health
from bitedge.serve.observability.metrics import CONTENT_TYPE
from bitedge.serve.openapi import errors
from bitedge.serve.service import Service

STATIC_TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}
TEXT = {"text/plain": {"schema": {"type": "string"}}}


def routes(service: Service) -> APIRouter:
    """Health and metrics."""
    router = APIRouter(tags=["operations"])

    @router.get("/healthz", summary="Alive", response_model=Health)
    async def healthz() -> Response:
        return json_response({"live": True, "ready": is_ready(service)})

    @router.get("/readyz", summary="Ready for requests", response_model=Health, responses={503: {"model": Health}})
    async def readyz() -> Response:
        ready = is_ready(service)
        response = json_response({"live": True, "ready": ready})
        response.status_code = 200 if ready else 503
        return response

    @router.get(
        "/metrics",
        summary="Prometheus metrics",
        response_model=None,
        responses={200: {"content": TEXT}, **errors(401, 403)},
    )
    async def metrics() -> Response:
        policy = service.config.metrics
        if policy == "off" or (policy == "key" and not service.keys):
            raise ForbiddenError("metrics are switched off; start with --metrics open, or with API keys, to allow this")
        service.metrics.pending.set(service.batcher.pending)
        return Response(await service.off_loop(service.metrics.exposition), media_type=CONTENT_TYPE)

    return router


def is_ready(service: Service) -> bool:
    """Whether new requests are welcome here."""
    return service.store.ready and not service.draining


def page_routes(service: Service) -> APIRouter:
    """The page, its files, and the documentation; none of it needs anything from outside."""
    router = APIRouter(include_in_schema=False)

    @router.get("/docs")
    async def docs() -> Response:
        return static_file("docs.html")

    if service.config.page:

        @router.get("/")
        async def page() -> Response:
            return static_file("index.html")

    @router.get("/static/{name}")
    async def static(name: str) -> Response:
        return static_file(name)

    return router


def static_file(name: str) -> Response:
    """A file of the `page` folder, found by its name in the list and not by a path."""
    found = {file.name: file for file in (resources.files("bitedge.serve") / "page").iterdir()}.get(name)
    suffix = "." + name.rpartition(".")[2]
    if found is None or suffix not in STATIC_TYPES:
        raise UnknownModelError(f"there is no file {name}")
    return Response(found.read_bytes(), media_type=STATIC_TYPES[suffix], headers={"cache-control": "no-cache"})
