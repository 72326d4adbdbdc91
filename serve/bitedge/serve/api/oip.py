"""`/v2`: the Open Inference Protocol, with Triton's extensions for binary tensors, classification, statistics and
model configuration."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response

from bitedge.serve.api import schemas
from bitedge.serve.api.classify import NAME_PATTERN, VERSION_PATTERN, JsonResponse
from bitedge.serve.api.errors import ServeError
from bitedge.serve.api.schemas import BINARY_HEADER, errors
from bitedge.serve.api.tensors import ParsedInferRequest, decompress, largest_request, parse, respond
from bitedge.serve.inference.job import Answer, Job
from bitedge.serve.models.backends import ServedModel
from bitedge.serve.observability.context import RequestContext
from bitedge.serve.security.dependencies import INLINE_BYTES, Service, disconnected, require

EXTENSIONS = ["binary_tensor_data", "classification", "statistics", "model_repository", "model_configuration"]
SCOPE = {"x-scope": "infer"}

ModelName = Annotated[str, Path(pattern=NAME_PATTERN)]
ModelVersion = Annotated[str, Path(pattern=VERSION_PATTERN)]


def routes(service: Service) -> APIRouter:
    """Return the routes of `/v2`, apart from health and the repository."""
    router = APIRouter(tags=["Open Inference Protocol"], dependencies=[Depends(require(service, "infer"))])

    @router.get(
        "/v2",
        summary="Server metadata",
        response_model=schemas.ServerMetadata,
        responses=errors(429),
        openapi_extra=SCOPE,
    )
    async def server_metadata(request: Request) -> Response:
        return JsonResponse(metadata_of_server(request.app.version))

    add_statistics_routes(router, service)  # before the models, none of which can be called "stats"
    add_model_routes(router, service)
    return router


def metadata_of_server(version: str) -> dict[str, Any]:
    """Describe the server."""
    return {"name": "bitedge", "version": version, "extensions": EXTENSIONS}


def add_model_routes(router: APIRouter, service: Service) -> None:
    """Add metadata, readiness, configuration and inference, of the newest version and of a named one."""

    async def metadata(model: ModelName) -> Response:
        return JsonResponse(model_metadata(service, service.registry.get(model)))

    async def metadata_of(model: ModelName, version: ModelVersion) -> Response:
        return JsonResponse(model_metadata(service, service.registry.get(model, version)))

    async def ready(model: ModelName) -> Response:
        return JsonResponse({"name": service.registry.get(model).name, "ready": True})

    async def ready_of(model: ModelName, version: ModelVersion) -> Response:
        return JsonResponse({"name": service.registry.get(model, version).name, "ready": True})

    async def config(model: ModelName) -> Response:
        return JsonResponse(model_config(service, service.registry.get(model)))

    async def config_of(model: ModelName, version: ModelVersion) -> Response:
        return JsonResponse(model_config(service, service.registry.get(model, version)))

    async def infer(request: Request, model: ModelName) -> Response:
        return await run_inference(service, request, service.registry.get(model))

    async def infer_of(request: Request, model: ModelName, version: ModelVersion) -> Response:
        return await run_inference(service, request, service.registry.get(model, version))

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
                openapi_extra=SCOPE,
            )
    inferences = (("/v2/models/{model}/infer", infer), ("/v2/models/{model}/versions/{version}/infer", infer_of))
    for path, endpoint in inferences:
        router.add_api_route(
            path,
            endpoint,
            methods=["POST"],
            summary="Inference",
            response_model=None,
            responses={200: schemas.infer_response(), **errors(400, 404, 408, 413, 415, 429, 503, 504)},
            openapi_extra={**schemas.json_body(schemas.InferRequest.model_json_schema(), required=True), **SCOPE},
        )


def add_statistics_routes(router: APIRouter, service: Service) -> None:
    """Add the statistics of all workers."""

    async def everything() -> Response:
        return JsonResponse(await statistics(service, None, None))

    async def of_model(model: ModelName) -> Response:
        return JsonResponse(await statistics(service, model, None))

    async def of_version(model: ModelName, version: ModelVersion) -> Response:
        return JsonResponse(await statistics(service, model, version))

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
            openapi_extra=SCOPE,
        )


async def run_inference(service: Service, request: Request, served: ServedModel) -> Response:
    """Read tensors, run them, answer with tensors."""
    context: RequestContext = request.scope["bitedge"]
    service.batcher.check_capacity()  # before the body is read
    body = await service.read_body(request)
    encoding = request.headers.get("content-encoding", "identity").lower()
    settings = service.settings
    limit = min(settings.max_body_bytes, largest_request(served, settings.max_images))
    size = len(body) if encoding == "identity" else INLINE_BYTES + 1  # unpacking is always done in a thread
    header = request.headers.get(BINARY_HEADER)
    parsed = await service.parse(read_request, size, body, encoding, limit, header, served, settings.max_images)
    answer = await run_tensor(service, served, parsed, context, lambda: disconnected(request))
    content, header_length = respond(served, answer.outputs, parsed)
    if header_length is None:
        return Response(content, media_type="application/json")
    return Response(content, media_type="application/octet-stream", headers={BINARY_HEADER: str(header_length)})


async def run_tensor(
    service: Service, served: ServedModel, parsed: ParsedInferRequest, context: RequestContext, watch: Any = None
) -> Answer:
    """Run the tensor of a request that came by HTTP or gRPC."""
    context.model = served.name
    budget = service.budget(parsed.timeout_us / 1e3 if parsed.timeout_us else None)
    job = Job(served, parsed.tensor, context.started + budget, count=len(parsed.tensor))
    (answer,) = await service.run([job], budget, context, watch)
    if isinstance(answer, ServeError):
        raise answer
    return answer


def read_request(
    body: bytes, encoding: str, limit: int, header: str | None, served: ServedModel, max_images: int
) -> ParsedInferRequest:
    """Unpack and parse a request."""
    return parse(decompress(body, encoding, limit), header, served, max_images)


async def statistics(service: Service, model: str | None, version: str | None) -> dict[str, Any]:
    """Return counts and times, of every version or of some."""
    if model is not None:
        service.registry.get(model, version)
    rows = await asyncio.to_thread(service.metrics.statistics)
    chosen = [row for (m, v), row in sorted(rows.items()) if model in (None, m) and version in (None, v)]
    return {"model_stats": chosen}


def model_metadata(service: Service, served: ServedModel) -> dict[str, Any]:
    """Describe a model in the words of the protocol."""
    entries = service.registry.snapshot.table.get(served.name, {})
    versions = sorted((version for version, entry in entries.items() if entry.model is not None), key=int)
    return {
        "name": served.name,
        "versions": versions,
        "platform": served.platform,
        "inputs": [{"name": served.input_name, "datatype": served.input_type, "shape": [-1, *served.input_shape]}],
        "outputs": [{"name": served.output_name, "datatype": "FP32", "shape": [-1, served.output_count]}],
    }


def model_config(service: Service, served: ServedModel) -> dict[str, Any]:
    """Describe a model in the words of Triton's model configuration."""
    config = service.settings
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
