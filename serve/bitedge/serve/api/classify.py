"""`/v1`: images in, labels and scores out."""

from __future__ import annotations

import io
import time
from typing import Any, TypeVar

import orjson
from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from PIL import Image
from pydantic import AliasChoices, BaseModel, Field, ValidationError

from bitedge.serve.api.errors import ServeError, ShedError
from bitedge.serve.api.forms import read_images
from bitedge.serve.api.schemas import (
    BINARY,
    BatchClassification,
    Classification,
    ModelCard,
    ModelList,
    ModelName,
    ModelVersion,
    Responses,
    images_body,
)
from bitedge.serve.inference.job import Answer, Job
from bitedge.serve.inference.preprocessing import MEDIA_TYPES, ImageLimits, load_image
from bitedge.serve.models.backends import ServedModel
from bitedge.serve.models.registry import Entry
from bitedge.serve.observability.context import RequestContext
from bitedge.serve.security.dependencies import Service, disconnected, require

TIMINGS = ("decode_ms", "queue_ms", "inference_ms", "total_ms")
FACTS = ("kernels", "accuracy", "measured_on", "dataset", "one_bit_weights", "macs")

TIMEOUT_HEADER = "X-Timeout-Ms"
PNG: Responses = {200: {"content": {"image/png": {"schema": BINARY}}, "description": "A PNG."}}
Query = TypeVar("Query", bound=BaseModel)


class Choice(BaseModel):
    """Which model is asked."""

    model: ModelName | None = Field(None, description="Model; the default one if not given.")
    version: ModelVersion | None = Field(None, description="Version; the newest if not given.")


class Options(Choice):
    """How to classify."""

    top_k: int = Field(5, ge=1, le=1000, description="How many classes to name.")
    timeout_ms: float | None = Field(
        None,
        validation_alias=AliasChoices("timeout_ms", TIMEOUT_HEADER),
        ge=1,
        le=600_000,
        description="Give up, before the work begins, after so many milliseconds.",
    )


ONE, SEVERAL = (images_body(MEDIA_TYPES, Options, multiple=multiple) for multiple in (False, True))
PREVIEWED = images_body(MEDIA_TYPES, Choice, multiple=False)


class JsonResponse(Response):
    """JSON that no cache keeps."""

    media_type = "application/json"

    def __init__(self, body: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        super().__init__(orjson.dumps(body), status, {"cache-control": "no-store", **(headers or {})})


def routes(service: Service) -> APIRouter:
    """Return the routes of `/v1`."""
    router = APIRouter(tags=["classify"], dependencies=require(service, "infer"))

    async def run(request: Request, *, multiple: bool) -> tuple[ServedModel, list[Answer | ServeError]]:
        context: RequestContext = request.scope["bitedge"]
        options = read_query(request, Options)
        served = service.registry.get(options.model, options.version)
        context.model = served.name
        budget = service.budget(options.timeout_ms)
        service.batcher.check_capacity(1, budget)  # before the body is read
        images = await read_images(request, service, multiple=multiple)
        jobs = [Job(served, data, context.started + budget, top_k=options.top_k) for data in images]
        return served, await service.run(jobs, budget, context, lambda: disconnected(request))

    @router.post(
        "/v1/classify",
        summary="Classify one image",
        response_model=None,
        responses={200: {"model": Classification}},
        openapi_extra=ONE,
    )
    async def classify(request: Request) -> Response:
        served, (answer,) = await run(request, multiple=False)
        if isinstance(answer, ServeError):
            raise answer
        result = classification(served, answer, request.scope["bitedge"].started)
        timing = result["timing"]
        times = ", ".join([f"{name[:-3]};dur={timing[name]}" for name in TIMINGS])
        headers = {"server-timing": f'{times}, batch;desc="{timing["batch_size"]}"'}
        return JsonResponse({"model": served.name, "version": served.version, **result}, headers=headers)

    @router.post(
        "/v1/classify/batch",
        summary="Classify several images",
        response_model=None,
        responses={200: {"model": BatchClassification}},
        openapi_extra=SEVERAL,
    )
    async def classify_batch(request: Request) -> Response:
        """Every image gets its own result or its own error; when all fail, the response is the first error."""
        served, answers = await run(request, multiple=True)
        failed = [answer for answer in answers if isinstance(answer, ServeError)]
        fatal = [error for error in failed if isinstance(error, ShedError) or error.status >= 500]
        if fatal or len(failed) == len(answers):
            raise (fatal or failed)[0]
        started = request.scope["bitedge"].started
        results = [classification(served, answer, started) for answer in answers]
        return JsonResponse({"model": served.name, "version": served.version, "results": results})

    @router.post(
        "/v1/preview", summary="What the network sees", response_model=None, responses=PNG, openapi_extra=PREVIEWED
    )
    async def preview(request: Request) -> Response:
        """The image after decoding, resizing and cropping, pixel for pixel as the network gets it."""
        choice = read_query(request, Choice)
        served = service.registry.get(choice.model, choice.version)
        service.batcher.check_capacity()
        (data,) = await read_images(request, service, multiple=False)
        png = await service.batcher.call(render_preview, data, served, service.settings.image_limits)
        return Response(png, media_type="image/png", headers={"cache-control": "no-store"})

    @router.get("/v1/models", summary="All models", response_model=ModelList)
    async def models() -> Response:
        cards = [model_card(service, entry, labels=False) for entry in service.registry.entries()]
        return JsonResponse({"models": cards})

    @router.get("/v1/models/{model}", summary="One model, with its labels", response_model=ModelCard)
    async def one_model(model: ModelName, version: ModelVersion | None = None) -> Response:
        return JsonResponse(model_card(service, service.registry.entry(model, version), labels=True))

    return router


def read_query(request: Request, shape: type[Query]) -> Query:
    """Read the query, and the header of the time-out, in one validation.

    FastAPI reads a query model field by field, which took a sixth of the time of a request.
    """
    values = dict(request.query_params)
    if TIMEOUT_HEADER in request.headers:
        values[TIMEOUT_HEADER] = request.headers[TIMEOUT_HEADER]
    try:
        return shape.model_validate(values)
    except ValidationError as error:
        raise RequestValidationError([{**e, "loc": ("query", *e["loc"])} for e in error.errors()]) from None


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
    file = io.BytesIO()
    Image.fromarray(load_image(data, served.geometry, limits=limits).squeeze()).save(file, format="PNG")
    return file.getvalue()


def model_card(service: Service, entry: Entry, *, labels: bool) -> dict[str, Any]:
    """Describe a version, for the page and `GET /v1/models`."""
    candidate, served = entry.candidate, entry.model
    card: dict[str, Any] = {"name": candidate.name, "version": candidate.version, "state": entry.state}
    card |= {"reason": entry.reason, "default": candidate.name == service.registry.default_name}
    if served is None:
        return card
    return {
        **card,
        **{key: served.facts[key] for key in FACTS if served.facts.get(key) is not None},
        "backend": served.backend,
        "size_bytes": served.size,
        "sha256": served.sha256,
        "input_shape": list(served.input_shape),
        "preprocessing": served.preprocessing,
        "classes": served.output_count,
        **({"labels": list(served.labels)} if labels else {}),
    }
