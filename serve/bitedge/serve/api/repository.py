"""`/v2/repository`: Triton's model repository extension."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import APIRouter, Request, Response

from bitedge.serve.api.classify import JsonResponse
from bitedge.serve.api.errors import ServeError
from bitedge.serve.api.schemas import ModelName, json_body
from bitedge.serve.security.dependencies import Service, require

READY = json_body({"type": "object", "properties": {"ready": {"type": "boolean"}}}, required=False)
EMPTY = json_body({"type": "object", "properties": {}}, required=False)


def routes(service: Service) -> APIRouter:
    """Return the routes of the repository."""
    router = APIRouter(tags=["Open Inference Protocol"])
    admin: dict[str, Any] = {"response_model": dict[str, Any], "dependencies": require(service, "admin")}

    @router.post(
        "/v2/repository/index",
        summary="All versions and their state",
        response_model=list[dict[str, str]],
        dependencies=require(service, "infer"),
        openapi_extra=READY,
    )
    async def index(request: Request) -> Response:
        only_ready = (await optional_json(service, request)).get("ready", False)
        if not isinstance(only_ready, bool):
            raise ServeError(f"ready: expected true or false, got {str(only_ready)[:80]!r}")
        return JsonResponse(repository_index(service, only_ready=only_ready))

    @router.post("/v2/repository/models/{model}/load", summary="Load a model", openapi_extra=EMPTY, **admin)
    async def load(request: Request, model: ModelName) -> Response:
        await load_model(service, model, (await optional_json(service, request)).get("parameters"))
        return JsonResponse({})

    @router.post("/v2/repository/models/{model}/unload", summary="Unload a model", openapi_extra=EMPTY, **admin)
    async def unload(request: Request, model: ModelName) -> Response:
        await optional_json(service, request)
        await service.change_unloaded(model, load=False)
        return JsonResponse({})

    return router


async def load_model(service: Service, name: str, parameters: Any) -> None:
    """Load a model, or try again to."""
    if parameters:
        raise ServeError("a model comes from its folder alone; load takes no configuration or files")
    await service.change_unloaded(name, load=True)


def repository_index(service: Service, *, only_ready: bool) -> list[dict[str, str]]:
    """List all versions with their state; unloaded ones are UNAVAILABLE."""
    entries = [entry for entry in service.registry.entries() if entry.model is not None or not only_ready]
    return [
        {"name": entry.candidate.name, "version": entry.candidate.version, "state": entry.state, "reason": entry.reason}
        for entry in entries
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
