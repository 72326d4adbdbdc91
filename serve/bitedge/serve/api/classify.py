"""`/v1`: images in, labels and scores out."""

from __future__ import annotations

import io
import time
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Path, Query, Request, Response
from PIL import Image

from bitedge.serve.api.errors import ServeError, ShedError
from bitedge.serve.api.forms import read_images
from bitedge.serve.api.schemas import (
    BatchClassification,
    Classification,
    ModelCard,
    ModelList,
    Responses,
    errors,
    images_body,
)
from bitedge.serve.inference.job import Answer, Job
from bitedge.serve.inference.preprocessing import MEDIA_TYPES, ImageLimits, load_image
from bitedge.serve.models.backends import ServedModel
from bitedge.serve.models.registry import Entry
from bitedge.serve.models.repository import NAME, VERSION
from bitedge.serve.observability.context import RequestContext
from bitedge.serve.security.dependencies import Service, disconnected, require

NAME_PATTERN, VERSION_PATTERN = f"^{NAME.pattern}$", f"^{VERSION.pattern}$"
TIMINGS = ("decode_ms", "queue_ms", "inference_ms", "total_ms")

ModelName = Annotated[str | None, Query(description="Model; the default one if not given.", pattern=NAME_PATTERN)]
ModelVersion = Annotated[str | None, Query(description="Version; the newest if not given.", pattern=VERSION_PATTERN)]
TopK = Annotated[int, Query(ge=1, le=1000, description="How many classes to name.")]
TimeoutMs = Annotated[
    float | None, Query(ge=1, le=600_000, description="Give up, before the work begins, after so many milliseconds.")
]
IMAGE_ERRORS = (400, 404, 408, 413, 415, 429, 503, 504)
PNG: Responses = {
    200: {"content": {"image/png": {"schema": {"type": "string", "format": "binary"}}}, "description": "A PNG."}
}


class JsonResponse(Response):
    """JSON that no cache keeps."""

    media_type = "application/json"

    def __init__(self, body: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        super().__init__(orjson.dumps(body), status, {"cache-control": "no-store", **(headers or {})})


def routes(service: Service) -> APIRouter:
    """Return the routes of `/v1`."""
    router = APIRouter(tags=["classify"], dependencies=[Depends(require(service, "infer"))])

    async def run(
        request: Request, served: ServedModel, top_k: int, timeout_ms: float | None, *, multiple: bool
    ) -> list[Answer | ServeError]:
        context: RequestContext = request.scope["bitedge"]
        context.model = served.name
        budget = service.budget(header_timeout(request) if timeout_ms is None else timeout_ms)
        service.batcher.check_capacity()  # before the body is read
        images = await read_images(request, service, multiple=multiple)
        jobs = [Job(served, data, context.started + budget, top_k=top_k) for data in images]
        return await service.run(jobs, budget, context, lambda: disconnected(request))

    @router.post(
        "/v1/classify",
        summary="Classify one image",
        response_model=None,
        responses={200: {"model": Classification}, **errors(*IMAGE_ERRORS)},
        openapi_extra={**images_body(MEDIA_TYPES, multiple=False), "x-scope": "infer"},
    )
    async def classify(
        request: Request,
        model: ModelName = None,
        version: ModelVersion = None,
        top_k: TopK = 5,
        timeout_ms: TimeoutMs = None,
    ) -> Response:
        served = service.registry.get(model, version)
        (answer,) = await run(request, served, top_k, timeout_ms, multiple=False)
        if isinstance(answer, ServeError):
            raise answer
        result = classification(served, answer, request.scope["bitedge"].started)
        timing = result["timing"]
        server_timing = ", ".join([f"{name[:-3]};dur={timing[name]}" for name in TIMINGS])
        server_timing += f', batch;desc="{timing["batch_size"]}"'
        return JsonResponse(
            {"model": served.name, "version": served.version, **result}, headers={"server-timing": server_timing}
        )

    @router.post(
        "/v1/classify/batch",
        summary="Classify several images",
        response_model=None,
        responses={200: {"model": BatchClassification}, **errors(*IMAGE_ERRORS)},
        openapi_extra={**images_body(MEDIA_TYPES, multiple=True), "x-scope": "infer"},
    )
    async def classify_batch(
        request: Request,
        model: ModelName = None,
        version: ModelVersion = None,
        top_k: TopK = 5,
        timeout_ms: TimeoutMs = None,
    ) -> Response:
        """Every image gets its own result or its own error; when all fail, the response is the first error."""
        served = service.registry.get(model, version)
        answers = await run(request, served, top_k, timeout_ms, multiple=True)
        failed = [answer for answer in answers if isinstance(answer, ServeError)]
        fatal = [error for error in failed if isinstance(error, ShedError) or error.status >= 500]
        if fatal or len(failed) == len(answers):
            raise (fatal or failed)[0]
        started = request.scope["bitedge"].started
        results = [classification(served, answer, started) for answer in answers]
        return JsonResponse({"model": served.name, "version": served.version, "results": results})

    @router.post(
        "/v1/preview",
        summary="What the network sees",
        response_model=None,
        responses={**PNG, **errors(*IMAGE_ERRORS)},
        openapi_extra={**images_body(MEDIA_TYPES, multiple=False), "x-scope": "infer"},
    )
    async def preview(request: Request, model: ModelName = None, version: ModelVersion = None) -> Response:
        """The image after decoding, resizing and cropping, pixel for pixel as the network gets it."""
        served = service.registry.get(model, version)
        service.batcher.check_capacity()
        (data,) = await read_images(request, service, multiple=False)
        png = await service.batcher.call(render_preview, data, served, service.settings.image_limits)
        return Response(png, media_type="image/png", headers={"cache-control": "no-store"})

    @router.get(
        "/v1/models",
        summary="All models",
        response_model=ModelList,
        responses=errors(429),
        openapi_extra={"x-scope": "infer"},
    )
    async def models() -> Response:
        cards = [model_card(service, entry, labels=False) for entry in service.registry.snapshot.entries()]
        return JsonResponse({"models": cards})

    @router.get(
        "/v1/models/{model}",
        summary="One model, with its labels",
        response_model=ModelCard,
        responses=errors(400, 404, 429),
        openapi_extra={"x-scope": "infer"},
    )
    async def one_model(model: Annotated[str, Path(pattern=NAME_PATTERN)], version: ModelVersion = None) -> Response:
        return JsonResponse(model_card(service, service.registry.entry(model, version), labels=True))

    return router


def header_timeout(request: Request) -> float | None:
    """Return the deadline in `X-Timeout-Ms`, for clients that cannot change the address."""
    text = request.headers.get("x-timeout-ms")
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 <= value <= 600_000:
        raise ServeError(f"X-Timeout-Ms: expected milliseconds from 1 to 600000, got {text[:40]!r}")
    return value


def classification(served: ServedModel, answer: Answer | ServeError, started: float) -> dict[str, Any]:
    """Return one image's predictions and times, or its error."""
    if isinstance(answer, ServeError):
        return {"error": str(answer)}
    seconds = (answer.decode, answer.queue, answer.inference, time.perf_counter() - started)
    timing: dict[str, Any] = {name: round(value * 1e3, 3) for name, value in zip(TIMINGS, seconds, strict=True)}
    timing["batch_size"] = answer.batch_size
    predictions = [{"label": served.labels[i], "score": score, "index": i} for i, score in answer.best]
    return {"predictions": predictions, "timing": timing}


def render_preview(data: bytes, served: ServedModel, limits: ImageLimits) -> bytes:
    """Decode as for the network, and encode that as PNG."""
    pixels = load_image(data, served.geometry, limits=limits)
    file = io.BytesIO()
    Image.fromarray(pixels.squeeze()).save(file, format="PNG")
    return file.getvalue()


def model_card(service: Service, entry: Entry, *, labels: bool) -> dict[str, Any]:
    """Describe a version, for the page and `GET /v1/models`."""
    served = entry.model
    card: dict[str, Any] = {
        "name": entry.candidate.name,
        "version": entry.candidate.version,
        "state": entry.state,
        "reason": entry.reason,
        "default": entry.candidate.name == service.registry.default_name,
    }
    if served is not None:
        known = ("kernels", "accuracy", "measured_on", "dataset", "one_bit_weights", "macs")
        card |= {key: served.facts[key] for key in known if served.facts.get(key) is not None}
        card |= {
            "backend": served.backend,
            "size_bytes": served.size,
            "sha256": served.sha256,
            "input_shape": list(served.input_shape),
            "preprocessing": served.preprocessing,
            "classes": served.output_count,
        }
        card |= {"labels": list(served.labels)} if labels else {}
    return card
