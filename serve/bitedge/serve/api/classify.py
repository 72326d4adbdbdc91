"""`/v1`: images in, labels and scores out."""

from __future__ import annotations

import io
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from PIL import Image

from bitedge.serve.answers import TOP_K, JsonAnswer, batch_item, classification, json_response
from bitedge.serve.api.errors import ServeError, ShedError
from bitedge.serve.api.forms import read_images
from bitedge.serve.api.schemas import BatchClassification, Classification, ModelCard, ModelList
from bitedge.serve.gate import Direct, Passage
from bitedge.serve.inference.preprocessing import ImageLimits, load_image
from bitedge.serve.models.backends import ServedModel
from bitedge.serve.models.registry import Entry
from bitedge.serve.openapi import errors, images_body
from bitedge.serve.service import Service

NAME = r"^[A-Za-z0-9_][A-Za-z0-9._-]*$"
VERSION = r"^[1-9][0-9]{0,17}$"

ModelName = Annotated[
    str | None, Query(description="Model; the default one if not given.", pattern=NAME, max_length=128)
]
ModelVersion = Annotated[str | None, Query(description="Version; the newest if not given.", pattern=VERSION)]
TopK = Annotated[int, Query(ge=1, le=1000, description="How many classes to name.")]
TimeoutMs = Annotated[
    float | None, Query(ge=1, le=600_000, description="Give up, before the work begins, after so many milliseconds.")
]


def routes(service: Service) -> tuple[APIRouter, Direct]:
    """The routes of `/v1`, and those of them that the gate may call directly when a request has no query."""
    router = APIRouter(tags=["classify"])

    @router.post(
        "/v1/classify",
        summary="Classify one image",
        response_model=None,
        responses={200: {"model": Classification}, **errors(400, 404, 408, 413, 415, 429, 503)},
        openapi_extra=images_body(several=False),
    )
    async def classify(
        request: Request,
        model: ModelName = None,
        version: ModelVersion = None,
        top_k: TopK = TOP_K,
        timeout_ms: TimeoutMs = None,
    ) -> Response:
        served = service.store.get(model, version)
        budget = service.budget(header_timeout(request) if timeout_ms is None else timeout_ms)
        passage: Passage = request.scope["bitedge"]
        passage.model = served.name
        (data,) = await read_images(request, service, several=False)
        (answer,) = await service.run(request, [service.job(served, data, passage.started, budget, top_k)], budget)
        if isinstance(answer, ServeError):
            raise answer
        return classification(served, answer, passage.started)

    @router.post(
        "/v1/classify/batch",
        summary="Classify several images",
        response_model=None,
        responses={200: {"model": BatchClassification}, **errors(400, 404, 408, 413, 415, 429, 503)},
        openapi_extra=images_body(several=True),
    )
    async def classify_batch(
        request: Request,
        model: ModelName = None,
        version: ModelVersion = None,
        top_k: TopK = TOP_K,
        timeout_ms: TimeoutMs = None,
    ) -> Response:
        """Every image gets its own result or its own error; when all fail, the answer is the first error."""
        served = service.store.get(model, version)
        budget = service.budget(header_timeout(request) if timeout_ms is None else timeout_ms)
        passage: Passage = request.scope["bitedge"]
        passage.model = served.name
        images = await read_images(request, service, several=True)
        jobs = [service.job(served, data, passage.started, budget, top_k) for data in images]
        answers = await service.run(request, jobs, budget)
        failed = [answer for answer in answers if isinstance(answer, ServeError)]
        shed = [error for error in failed if isinstance(error, ShedError)]
        if shed or len(failed) == len(answers):
            raise (shed or failed)[0]
        results = ", ".join([batch_item(served, answer, passage.started) for answer in answers])
        text = f'{{"model": "{served.name}", "version": "{served.version}", "results": [{results}]}}'
        return JsonAnswer(text.encode())

    @router.post(
        "/v1/preview",
        summary="What the network sees",
        response_model=None,
        responses={
            200: {
                "content": {"image/png": {"schema": {"type": "string", "format": "binary"}}},
                "description": "A PNG.",
            },
            **errors(400, 404, 408, 413, 415, 429, 503),
        },
        openapi_extra=images_body(several=False),
    )
    async def preview(request: Request, model: ModelName = None, version: ModelVersion = None) -> Response:
        """The image after decoding, resizing and cropping, pixel for pixel as the network gets it."""
        served = service.store.get(model, version)
        (data,) = await read_images(request, service, several=False)
        png = await service.in_thread(render_preview, data, served, service.config.image_limits)
        return Response(png, media_type="image/png", headers={"cache-control": "no-store"})

    @router.get("/v1/models", summary="All models", response_model=ModelList, responses=errors(429))
    async def models() -> Response:
        cards = [model_card(service, entry, labels=False) for entry in service.store.entries()]
        return json_response({"models": cards})

    @router.get(
        "/v1/models/{model}",
        summary="One model, with its labels",
        response_model=ModelCard,
        responses=errors(400, 404, 429),
    )
    async def model_by_name(
        model: Annotated[str, Path(pattern=NAME, max_length=128)], version: ModelVersion = None
    ) -> Response:
        served = service.store.get(model, version)
        return json_response(model_card(service, service.store.table[model][served.version], labels=True))

    return router, {"/v1/classify": classify, "/v1/classify/batch": classify_batch}


def header_timeout(request: Request) -> float | None:
    """The deadline in `X-Timeout-Ms`, for clients that cannot change the address."""
    passage: Passage = request.scope["bitedge"]
    raw = passage.headers.get(b"x-timeout-ms")
    if raw is None:
        return None
    text = raw.decode("latin-1")
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 <= value <= 600_000:
        raise ServeError(f"X-Timeout-Ms: expected milliseconds from 1 to 600000, got {text[:40]!r}")
    return value


def render_preview(data: bytes, served: ServedModel, limits: ImageLimits) -> bytes:
    """Decode as for the network, and encode that as PNG."""
    pixels = load_image(data, served.geometry, limits=limits)
    file = io.BytesIO()
    Image.fromarray(pixels.squeeze()).save(file, format="PNG")
    return file.getvalue()


def model_card(service: Service, entry: Entry, *, labels: bool) -> dict[str, Any]:
    """What the page and `GET /v1/models` show of a version."""
    served = entry.model
    card: dict[str, Any] = {
        "name": entry.candidate.name,
        "version": entry.candidate.version,
        "state": entry.state,
        "reason": entry.reason,
        "default": entry.candidate.name == service.store.default_name,
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
