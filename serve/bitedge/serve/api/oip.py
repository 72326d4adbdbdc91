"""`/v2`: the Open Inference Protocol, with Triton's extensions for binary tensors, classification, statistics and
model configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, Request, Response

from bitedge.serve.api.classify import JsonResponse
from bitedge.serve.api.errors import ServeError
from bitedge.serve.api.schemas import (
    BINARY_HEADER,
    INFER_RESPONSE,
    InferRequest,
    ModelMetadata,
    ModelName,
    ModelVersion,
    json_body,
)
from bitedge.serve.api.tensors import ParsedInferRequest, decompress, largest_request, parse, respond
from bitedge.serve.inference.job import Answer, Job
from bitedge.serve.models.backends import ServedModel
from bitedge.serve.observability.context import RequestContext
from bitedge.serve.security.dependencies import INLINE_BYTES, Service, disconnected, require

EXTENSIONS = ["binary_tensor_data", "classification", "statistics", "model_repository", "model_configuration"]
MODEL, VERSIONED = "/v2/models/{model}", "/v2/models/{model}/versions/{version}"


def routes(service: Service) -> APIRouter:
    """Return the routes of `/v2`, apart from health and the repository; most exist with and without a version."""
    router = APIRouter(tags=["Open Inference Protocol"], dependencies=require(service, "infer"))

    @router.get("/v2", summary="Server metadata", response_model=dict[str, Any])
    async def server(request: Request) -> Response:
        return JsonResponse(server_metadata(request.app.version))

    @router.get("/v2/models/stats", summary="Statistics of all models", response_model=dict[str, Any])
    async def all_statistics() -> Response:  # before the models, none of which can be called "stats"
        return JsonResponse(await statistics(service))

    async def metadata(model: ModelName, version: ModelVersion = "") -> Response:
        return JsonResponse(model_metadata(service, service.registry.get(model, version)))

    async def ready(model: ModelName, version: ModelVersion = "") -> Response:
        return JsonResponse({"name": service.registry.get(model, version).name, "ready": True})

    async def config(model: ModelName, version: ModelVersion = "") -> Response:
        return JsonResponse(model_config(service, service.registry.get(model, version)))

    async def stats(model: ModelName, version: ModelVersion = "") -> Response:
        return JsonResponse(await statistics(service, model, version))

    async def infer(request: Request, model: ModelName, version: ModelVersion = "") -> Response:
        return await run_inference(service, request, service.registry.get(model, version))

    gets: tuple[tuple[str, Callable[..., Awaitable[Response]], str, Any], ...] = (
        ("", metadata, "Model metadata", ModelMetadata),
        ("/ready", ready, "Model readiness", dict[str, Any]),
        ("/config", config, "Model configuration", dict[str, Any]),
        ("/stats", stats, "Statistics", dict[str, Any]),
    )
    body = json_body(InferRequest.model_json_schema(), required=True)
    for path in (MODEL, VERSIONED):
        for suffix, call, summary, shape in gets:
            router.get(path + suffix, summary=summary, response_model=shape)(call)
        router.post(
            f"{path}/infer", summary="Inference", response_model=None, responses=INFER_RESPONSE, openapi_extra=body
        )(infer)
    return router


def server_metadata(version: str) -> dict[str, Any]:
    """Describe the server."""
    return {"name": "bitedge", "version": version, "extensions": EXTENSIONS}


async def run_inference(service: Service, request: Request, served: ServedModel) -> Response:
    """Read tensors, run them, answer with tensors."""
    service.batcher.check_capacity()  # before the body is read
    body = await service.read_body(request)
    encoding = request.headers.get("content-encoding", "identity").lower()
    header = request.headers.get(BINARY_HEADER)
    most = service.settings.max_images
    limit = min(service.settings.max_body_bytes, largest_request(served, most))

    def read() -> ParsedInferRequest:
        return parse(decompress(body, encoding, limit), header, served, most)

    size = len(body) if encoding == "identity" else INLINE_BYTES + 1  # unpacking is always done in a thread
    parsed = await service.parse(read, size)
    answer = await run_tensor(service, served, parsed, request.scope["bitedge"], lambda: disconnected(request))
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


async def statistics(service: Service, model: str = "", version: str = "") -> dict[str, Any]:
    """Return counts and times of all workers, of every version or of some."""
    if model:
        service.registry.get(model, version)
    rows = await asyncio.to_thread(service.metrics.statistics)
    return {
        "model_stats": [row for row in rows if model in ("", row["name"]) and version in ("", row["version"])],
    }


def model_metadata(service: Service, served: ServedModel) -> dict[str, Any]:
    """Describe a model in the words of the protocol."""
    entries = service.registry.table.get(served.name, {})
    return {
        "name": served.name,
        "versions": sorted((version for version, entry in entries.items() if entry.model is not None), key=int),
        "platform": served.platform,
        "inputs": [{"name": served.input_name, "datatype": served.input_type, "shape": [-1, *served.input_shape]}],
        "outputs": [{"name": served.output_name, "datatype": "FP32", "shape": [-1, served.output_count]}],
    }


def model_config(service: Service, served: ServedModel) -> dict[str, Any]:
    """Describe a model in the words of Triton's model configuration."""
    settings = service.settings
    source = {"name": served.input_name, "data_type": f"TYPE_{served.input_type}", "dims": list(served.input_shape)}
    return {
        "name": served.name,
        "platform": served.platform,
        "backend": served.backend,
        "max_batch_size": settings.max_images,
        "input": [{**source, "format": "FORMAT_NHWC"}],
        "output": [{"name": served.output_name, "data_type": "TYPE_FP32", "dims": [served.output_count]}],
        "instance_group": [{"kind": "KIND_CPU", "count": settings.thread_count}],
        "dynamic_batching": {"max_queue_delay_microseconds": int(settings.batch_delay_ms * 1e3)},
        "parameters": {"sha256": {"string_value": served.sha256}},
    }
