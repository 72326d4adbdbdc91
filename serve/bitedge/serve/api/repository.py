"""`/v2/repository`: Triton's model repository extension."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Path, Request, Response

from bitedge.serve.api.classify import NAME_PATTERN, JsonResponse
from bitedge.serve.api.errors import ServeError
from bitedge.serve.api.schemas import IndexEntry, errors, json_body
from bitedge.serve.security.dependencies import Service, require

ModelName = Annotated[str, Path(pattern=NAME_PATTERN)]


def routes(service: Service) -> APIRouter:
    """Return the routes of the repository."""
    router = APIRouter(tags=["Open Inference Protocol"])
    ready = json_body({"type": "object", "properties": {"ready": {"type": "boolean"}}}, required=False)

    @router.post(
        "/v2/repository/index",
        summary="All versions and their state",
        response_model=list[IndexEntry],
        responses=errors(400, 408, 413, 429, 503),
        dependencies=[Depends(require(service, "infer"))],
        openapi_extra={**ready, "x-scope": "infer"},
    )
    async def index(request: Request) -> Response:
        only_ready = (await optional_json(service, request)).get("ready", False)
        if not isinstance(only_ready, bool):
            raise ServeError(f"ready: expected true or false, got {str(only_ready)[:80]!r}")
        return JsonResponse(repository_index(service, only_ready=only_ready))

    async def load(request: Request, model: ModelName) -> Response:
        if (await optional_json(service, request)).get("parameters"):
            raise ServeError("a model comes from its folder alone; load takes no configuration or files")
        await service.change_unloaded(model, load=True)
        return JsonResponse({})

    async def unload(request: Request, model: ModelName) -> Response:
        await optional_json(service, request)
        await service.change_unloaded(model, load=False)
        return JsonResponse({})

    empty = json_body({"type": "object", "properties": {}}, required=False)
    for verb, call in (("load", load), ("unload", unload)):
        router.add_api_route(
            f"/v2/repository/models/{{model}}/{verb}",
            call,
            methods=["POST"],
            summary=f"{verb.capitalize()} a model",
            response_model=dict[str, Any],
            responses=errors(400, 401, 403, 404, 408, 413, 503, 504),
            dependencies=[Depends(require(service, "admin"))],
            openapi_extra={**empty, "x-scope": "admin"},
        )
    return router


def repository_index(service: Service, *, only_ready: bool) -> list[dict[str, str]]:
    """List all versions with their state; unloaded ones are UNAVAILABLE."""
    return [
        {
            "name": entry.candidate.name,
            "version": entry.candidate.version,
            "state": entry.state,
            "reason": entry.reason,
        }
        for entry in service.registry.snapshot.entries()
        if entry.model is not None or not only_ready
    ]


async def optional_json(service: Service, request: Request) -> dict[str, Any]:
    """Read a JSON object from the body; Triton's clients send an empty one."""
    body = await service.read_body(request)
    try:
        value = await service.parse(orjson.loads, len(body), body) if body.strip() else {}
    except orjson.JSONDecodeError:
        raise ServeError("expected a JSON object, or no body") from None
    if not isinstance(value, dict):
        raise ServeError(f"expected a JSON object, or no body, got {type(value).__name__}")
    return value
