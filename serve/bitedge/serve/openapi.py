"""What FastAPI cannot know of routes that read their own bodies: errors, raw images, keys."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from bitedge.serve.access import scope_of
from bitedge.serve.api.schemas import Error
from bitedge.serve.inference.preprocessing import MEDIA_TYPES

DESCRIPTIONS = {
    400: "The request is wrong; the message says how.",
    401: "An API key is needed.",
    403: "Not allowed.",
    404: "There is no such model or version.",
    405: "The path has no such method.",
    408: "The body did not arrive in time.",
    413: "Too many bytes or too many pixels.",
    415: "Not a format or content type that is accepted.",
    429: "Too many requests from one caller; see Retry-After.",
    500: "A fault of the service.",
    503: "No capacity now, or the deadline passed in the queue; see Retry-After.",
}
RETRY_AFTER = {
    "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "string", "pattern": "^[1-9][0-9]*$"}}
}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The error answers of a route."""
    return {
        status: {
            "model": Error,
            "description": DESCRIPTIONS[status],
            **({"headers": RETRY_AFTER} if status in (429, 503) else {}),
        }
        for status in statuses
    }


def images_body(*, several: bool) -> dict[str, Any]:
    """The request body of a route that takes images."""
    binary = {"type": "string", "format": "binary"}
    part: dict[str, Any] = {"type": "array", "items": binary, "minItems": 1, "maxItems": 64} if several else binary
    form = {"type": "object", "properties": {"image": part}, "required": ["image"], "additionalProperties": False}
    content: dict[str, Any] = {} if several else {kind: {"schema": binary} for kind in MEDIA_TYPES}
    content["multipart/form-data"] = {
        "schema": form,
        "encoding": {"image": {"contentType": ", ".join(MEDIA_TYPES)}},
    }
    return {"requestBody": {"required": True, "content": content}}


def complete(app: FastAPI, *, closed: frozenset[str]) -> dict[str, Any]:
    """Generate the document once, without FastAPI's own error schema, and with keys on the closed scopes' paths."""
    if app.openapi_schema:
        return app.openapi_schema
    document = FastAPI.openapi(app)
    for name in ("HTTPValidationError", "ValidationError"):
        document.get("components", {}).get("schemas", {}).pop(name, None)
    for path, operations in document["paths"].items():
        for operation in operations.values():
            operation["responses"].pop("422", None)
            if scope_of(path) in closed:
                operation["security"] = [{"bearer": []}, {"header": []}]
                operation["responses"].update(error_responses(401, 403))
    if closed:
        document.setdefault("components", {})["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        }
    app.openapi_schema = document
    return document


def error_responses(*statuses: int) -> dict[str, Any]:
    """Error answers as they stand in the finished document."""
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {str(status): {"description": DESCRIPTIONS[status], "content": content} for status in statuses}
