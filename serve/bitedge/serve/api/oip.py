"""`/v2`: the Open Inference Protocol, with Triton's extensions for binary tensors, classification, statistics,
model repository and model configuration."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from bitedge.serve import openapi
from bitedge.serve.answers import json_response
from bitedge.serve.api import schemas
from bitedge.serve.api.classify import NAME, VERSION
from bitedge.serve.api.errors import ServeError
from bitedge.serve.api.health import is_ready
from bitedge.serve.api.tensors import decompress, parse, respond
from bitedge.serve.gate import Passage
from bitedge.serve.inference.job import Job
from bitedge.serve.models.backends import ServedModel
from bitedge.serve.service import Service

EXTENSIONS = ["binary_tensor_data", "classification", "statistics", "model_repository", "model_configuration"]
LARGE_BODY = 1 << 16  # bytes of JSON that are parsed off the event loop
BINARY_HEADER = "Inference-Header-Content-Length"

ModelName = Annotated[str, Path(pattern=NAME, max_length=128)]
ModelVersion = Annotated[str, Path(pattern=VERSION)]
errors = openapi.errors


def routes(service: Service) -> APIRouter:
    """The routes of `/v2`."""
    router = APIRouter(tags=["Open Inference Protocol"])
    add_server_routes(router, service)
    add_statistics_routes(router, service)  # before the models: one of them could not be called "stats" anyway
    add_model_routes(router, service)
    add_repository_routes(router, service)
    return router


def add_server_routes(router: APIRouter, service: Service) -> None:
    """Who is this, and is it well."""

    @router.get("/v2", summary="Server metadata", response_model=schemas.ServerMetadata, responses=errors(429))
    async def server_metadata(request: Request) -> Response:
        return json_response({"name": "bitedge", "version": request.app.version, "extensions": EXTENSIONS})

    @router.get("/v2/health/live", summary="Alive", response_model=schemas.Health)
    async def live() -> Response:
        return json_response({"live": True, "ready": is_ready(service)})

    @router.get(
        "/v2/health/ready",
        summary="Ready",
        response_model=schemas.Health,
        responses={503: {"model": schemas.Health, "description": "Not ready."}},
    )
    async def ready() -> Response:
        response = json_response({"live": True, "ready": is_ready(service)})
        response.status_code = 200 if is_ready(service) else 503
        return response


def add_model_routes(router: APIRouter, service: Service) -> None:
    """Metadata, readiness, configuration and inference, of the newest version and of a named one."""

    async def metadata(model: ModelName) -> Response:
        return json_response(model_metadata(service, service.store.get(model)))

    async def metadata_of(model: ModelName, version: ModelVersion) -> Response:
        return json_response(model_metadata(service, service.store.get(model, version)))

    async def ready(model: ModelName) -> Response:
        return json_response({"name": service.store.get(model).name, "ready": True})

    async def ready_of(model: ModelName, version: ModelVersion) -> Response:
        return json_response({"name": service.store.get(model, version).name, "ready": True})

    async def config(model: ModelName) -> Response:
        return json_response(model_config(service, service.store.get(model)))

    async def config_of(model: ModelName, version: ModelVersion) -> Response:
        return json_response(model_config(service, service.store.get(model, version)))

    async def infer(request: Request, model: ModelName) -> Response:
        return await run_inference(service, request, service.store.get(model))

    async def infer_of(request: Request, model: ModelName, version: ModelVersion) -> Response:
        return await run_inference(service, request, service.store.get(model, version))

    for suffix, plain, versioned, summary, shape in (
        ("", metadata, metadata_of, "Model metadata", schemas.ModelMetadata),
        ("/ready", ready, ready_of, "Model readiness", dict[str, Any]),
        ("/config", config, config_of, "Model configuration", dict[str, Any]),
    ):
        for path, call in (("/v2/models/{model}", plain), ("/v2/models/{model}/versions/{version}", versioned)):
            router.add_api_route(
                path + suffix,
                call,
                methods=["GET"],
                summary=summary,
                response_model=shape,
                responses=errors(400, 404, 429),
            )
    inferences = (("/v2/models/{model}/infer", infer), ("/v2/models/{model}/versions/{version}/infer", infer_of))
    for path, endpoint in inferences:
        router.add_api_route(
            path,
            endpoint,
            methods=["POST"],
            summary="Inference",
            response_model=None,
            responses={200: infer_response(), **errors(400, 404, 408, 413, 415, 429, 503)},
            openapi_extra=json_body(schemas.InferRequest.model_json_schema(), required=True),
        )


def add_statistics_routes(router: APIRouter, service: Service) -> None:
    """What was done so far, by all workers."""

    async def everything() -> Response:
        return await statistics(service, None, None)

    async def of_model(model: ModelName) -> Response:
        return await statistics(service, model, None)

    async def of_version(model: ModelName, version: ModelVersion) -> Response:
        return await statistics(service, model, version)

    for path, call in (
        ("/v2/models/stats", everything),
        ("/v2/models/{model}/stats", of_model),
        ("/v2/models/{model}/versions/{version}/stats", of_version),
    ):
        statuses = (429,) if call is everything else (400, 404, 429)
        router.add_api_route(
            path,
            call,
            methods=["GET"],
            summary="Statistics",
            response_model=schemas.Statistics,
            responses=errors(*statuses),
        )


def add_repository_routes(router: APIRouter, service: Service) -> None:
    """What is in the model folder, and orders to load or unload."""

    @router.post(
        "/v2/repository/index",
        summary="All versions and their state",
        response_model=list[schemas.IndexEntry],
        responses=errors(400, 408, 413, 429),
        openapi_extra=json_body({"type": "object", "properties": {"ready": {"type": "boolean"}}}, required=False),
    )
    async def index(request: Request) -> Response:
        only_ready = (await optional_json(service, request)).get("ready", False)
        if not isinstance(only_ready, bool):
            raise ServeError(f"ready: expected true or false, got {only_ready!r}")
        entries = [entry for entry in service.store.entries() if entry.model is not None or not only_ready]
        fields = [(entry.candidate.name, entry.candidate.version, entry.state, entry.reason) for entry in entries]
        return json_response([dict(zip(("name", "version", "state", "reason"), row, strict=True)) for row in fields])

    @router.post(
        "/v2/repository/models/{model}/load",
        summary="Load a model",
        response_model=dict[str, Any],
        responses=errors(400, 401, 403, 404, 408, 413),
        openapi_extra=json_body({"type": "object", "properties": {}}, required=False),
    )
    async def load(request: Request, model: ModelName) -> Response:
        body = await optional_json(service, request)
        if body.get("parameters"):
            raise ServeError("a model comes from its folder alone; load takes no configuration or files")
        await service.control.load(model)
        return json_response({})

    @router.post(
        "/v2/repository/models/{model}/unload",
        summary="Unload a model",
        response_model=dict[str, Any],
        responses=errors(400, 401, 403, 404, 408, 413),
        openapi_extra=json_body({"type": "object", "properties": {}}, required=False),
    )
    async def unload(request: Request, model: ModelName) -> Response:
        await optional_json(service, request)
        await service.control.unload(model)
        return json_response({})


async def run_inference(service: Service, request: Request, served: ServedModel) -> Response:
    """Read tensors, run them, answer with tensors."""
    passage: Passage = request.scope["bitedge"]
    passage.model = served.name
    limit, encoding = service.config.max_body_bytes, request.headers.get("content-encoding", "")
    body = await service.read_body(request)
    arguments = (body, encoding, limit, request.headers.get(BINARY_HEADER), served, service.config.max_images)
    parsed = await asyncio.to_thread(read_request, *arguments) if len(body) > LARGE_BODY else read_request(*arguments)
    budget = service.budget(parsed.timeout_us / 1e3 if parsed.timeout_us else None)
    job = Job(model=served, payload=parsed.tensor, deadline=passage.started + budget, count=len(parsed.tensor))
    (answer,) = await service.run(request, [job], budget)
    if isinstance(answer, ServeError):
        raise answer
    content, header_length = respond(served, answer.outputs, parsed)
    if header_length is None:
        return Response(content, media_type="application/json")
    return Response(content, media_type="application/octet-stream", headers={BINARY_HEADER: str(header_length)})


def read_request(body: bytes, encoding: str, limit: int, header: str | None, served: ServedModel, images: int) -> Any:
    """Unpack and parse a request."""
    return parse(decompress(body, encoding.lower(), limit), header, served, images)


async def optional_json(service: Service, request: Request) -> dict[str, Any]:
    """The JSON object in the body; clients of Triton send an empty one."""
    body = await service.read_body(request)
    try:
        value = json.loads(body) if body.strip() else {}
    except (ValueError, RecursionError):
        raise ServeError("expected a JSON object, or no body") from None
    if not isinstance(value, dict):
        raise ServeError(f"expected a JSON object, or no body, got {type(value).__name__}")
    return value


async def statistics(service: Service, model: str | None, version: str | None) -> Response:
    """Counts and times, of every version or of some."""
    if model is not None:
        service.store.get(model, version)
    rows = await asyncio.to_thread(service.metrics.statistics)
    chosen = [row for (m, v), row in sorted(rows.items()) if model in (None, m) and version in (None, v)]
    return json_response({"model_stats": chosen})


def model_metadata(service: Service, served: ServedModel) -> dict[str, Any]:
    """What the protocol wants to know of a model."""
    entries = service.store.table.get(served.name, {})
    versions = sorted((version for version, entry in entries.items() if entry.model is not None), key=int)
    return {
        "name": served.name,
        "versions": versions,
        "platform": served.platform,
        "inputs": [{"name": served.input_name, "datatype": served.input_type, "shape": [-1, *served.input_shape]}],
        "outputs": [{"name": served.output_name, "datatype": "FP32", "shape": [-1, served.output_count]}],
    }


def model_config(service: Service, served: ServedModel) -> dict[str, Any]:
    """The same in the words of Triton's model configuration."""
    config = service.config
    delay = int(config.batch_delay_ms * 1e3)
    return {
        "name": served.name,
        "platform": served.platform,
        "backend": served.backend,
        "max_batch_size": config.max_images,
        "input": [
            {
                "name": served.input_name,
                "data_type": f"TYPE_{served.input_type}",
                "format": "FORMAT_NHWC",
                "dims": list(served.input_shape),
            }
        ],
        "output": [{"name": served.output_name, "data_type": "TYPE_FP32", "dims": [served.output_count]}],
        "instance_group": [{"kind": "KIND_CPU", "count": config.thread_count}],
        "dynamic_batching": {"max_queue_delay_microseconds": delay},
        "parameters": {"sha256": {"string_value": served.sha256}},
    }


def json_body(schema: dict[str, Any], *, required: bool) -> dict[str, Any]:
    """A JSON body in the OpenAPI document, with its definitions inlined."""
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": inline(schema)}}}}


def inline(schema: dict[str, Any]) -> dict[str, Any]:
    """Replace references to `$defs` by what they stand for."""
    definitions = schema.get("$defs", {})

    def resolve(value: Any) -> Any:
        if isinstance(value, dict):
            if "$ref" in value:
                return resolve(definitions[value["$ref"].rpartition("/")[2]])
            return {key: resolve(inner) for key, inner in value.items() if key != "$defs"}
        return [resolve(inner) for inner in value] if isinstance(value, list) else value

    resolved: dict[str, Any] = resolve(schema)
    return resolved


def infer_response() -> dict[str, Any]:
    """JSON, or JSON followed by bytes."""
    return {
        "model": schemas.InferResponse,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        "headers": {BINARY_HEADER: {"description": "Bytes of JSON before the tensors.", "schema": {"type": "string"}}},
    }
