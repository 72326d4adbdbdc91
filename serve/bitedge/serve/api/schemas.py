"""JSON bodies of requests and responses, and their descriptions in the OpenAPI document."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field


class Closed(BaseModel):
    """A JSON object with these fields and no others."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())


class Error(Closed):
    """Every error, whatever its status."""

    error: str = Field(description="What was expected, what came, what to do.")


class Prediction(Closed):
    """One class."""

    label: str
    score: float = Field(ge=0, le=1, description="Probability.")
    index: int = Field(ge=0)


class Timing(Closed):
    """Where the time went, in milliseconds."""

    decode_ms: float
    queue_ms: float
    inference_ms: float = Field(description="Of the whole batch that the image ran in.")
    total_ms: float
    batch_size: int = Field(ge=1, description="Images that ran together.")


class Classification(Closed):
    """The answer to one image."""

    model: str
    version: str
    predictions: list[Prediction]
    timing: Timing


class BatchItem(Closed):
    """One image of several: predictions, or what is wrong with it."""

    predictions: list[Prediction] | None = None
    timing: Timing | None = None
    error: str | None = None


class BatchClassification(Closed):
    """The answers to several images, in their order."""

    model: str
    version: str
    results: list[BatchItem]


class ModelCard(Closed):
    """What is known of one version of a model."""

    name: str
    version: str
    state: str
    reason: str = Field(description="Why it, or the newer file on disk, is not served; empty if all is well.")
    default: bool
    backend: str | None = None
    kernels: list[str] = []
    accuracy: float | None = None
    measured_on: str | None = Field(None, description="The split that the accuracy was measured on.")
    dataset: str | None = None
    one_bit_weights: float | None = Field(None, description="Share of the weights that are one bit.")
    macs: int | None = None
    size_bytes: int | None = None
    sha256: str | None = None
    input_shape: list[int] = Field([], description="Height, width, channels.")
    preprocessing: dict[str, Any] | None = None
    classes: int | None = None
    labels: list[str] = []


class ModelList(Closed):
    """Every version that is known."""

    models: list[ModelCard]


class Health(BaseModel):
    """Alive and ready; both, because clients of the Open Inference Protocol read either."""

    live: bool
    ready: bool


class Tensor(BaseModel):
    """A tensor of the Open Inference Protocol, described."""

    name: str
    datatype: str
    shape: list[int]


class ServerMetadata(Closed):
    """Who answers."""

    name: str
    version: str
    extensions: list[str]


class ModelMetadata(Closed):
    """What a model takes and gives; -1 is the batch."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[Tensor]
    outputs: list[Tensor]


Parameters = dict[str, str | float | bool]


class RequestInput(BaseModel):
    """An input tensor: `data`, or bytes after the JSON as `binary_data_size` says."""

    name: str
    shape: list[int] = Field(max_length=8)
    datatype: str
    parameters: Parameters | None = None
    data: list[Any] | None = None


class RequestOutput(BaseModel):
    """An output that is asked for; `classification: k` asks for the k best classes."""

    name: str
    parameters: Parameters | None = None


class InferRequest(BaseModel):
    """A request for inference."""

    id: str | None = None
    parameters: Parameters | None = Field(None, description="`timeout` in microseconds, `binary_data_output`.")
    inputs: list[RequestInput] = Field(min_length=1, max_length=1)
    outputs: list[RequestOutput] | None = None


class ResponseOutput(BaseModel):
    """An output tensor."""

    name: str
    shape: list[int]
    datatype: str
    parameters: Parameters | None = None
    data: list[Any] | None = None


class InferResponse(BaseModel):
    """The answer to a request for inference."""

    model_config = ConfigDict(protected_namespaces=())

    model_name: str
    model_version: str
    id: str | None = None
    parameters: Parameters | None = None
    outputs: list[ResponseOutput]


class IndexEntry(Closed):
    """One version in the repository."""

    name: str
    version: str
    state: str
    reason: str


class Duration(Closed):
    """How often, and how long altogether."""

    count: int
    ns: int


class InferenceStatistics(Closed):
    """Where the time of all requests went."""

    success: Duration
    fail: Duration
    queue: Duration
    compute_input: Duration
    compute_infer: Duration
    compute_output: Duration


class BatchStatistics(Closed):
    """The same for one size of batch."""

    batch_size: int
    compute_input: Duration
    compute_infer: Duration
    compute_output: Duration


class ModelStatistics(Closed):
    """Statistics of one version."""

    name: str
    version: str
    last_inference: int
    inference_count: int
    execution_count: int
    inference_stats: InferenceStatistics
    batch_stats: list[BatchStatistics]


class Statistics(Closed):
    """Statistics of the versions that have worked."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    model_stats: list[ModelStatistics]


BINARY_HEADER = "Inference-Header-Content-Length"
DESCRIPTIONS = {
    400: "The request is wrong; the message says how.",
    401: "An API key is needed.",
    403: "Not allowed.",
    404: "There is no such model or version.",
    408: "The body did not arrive in time.",
    413: "Too many bytes or too many pixels.",
    415: "Not a format or content type that is accepted.",
    429: "Too many requests from one caller; see Retry-After.",
    503: "No capacity now, or the deadline passed in the queue; see Retry-After.",
    504: "The work did not end in time.",
}
RETRY_AFTER = {
    "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "string", "pattern": "^[1-9][0-9]*$"}}
}
Responses = dict[int | str, dict[str, Any]]


def errors(*statuses: int) -> Responses:
    """Describe the error responses of a route."""
    return {
        status: {
            "model": Error,
            "description": DESCRIPTIONS[status],
            **({"headers": RETRY_AFTER} if status in (429, 503) else {}),
        }
        for status in statuses
    }


def images_body(media_types: tuple[str, ...], *, multiple: bool) -> dict[str, Any]:
    """Describe the request body of a route that takes images."""
    binary = {"type": "string", "format": "binary"}
    base64 = {"type": "string", "contentEncoding": "base64", "minLength": 4}
    name = "images" if multiple else "image"

    def one_field(name: str, schema: dict[str, Any]) -> dict[str, Any]:
        schema = {"type": "array", "items": schema, "minItems": 1, "maxItems": 64} if multiple else schema
        return {"type": "object", "properties": {name: schema}, "required": [name], "additionalProperties": False}

    content: dict[str, Any] = {} if multiple else {kind: {"schema": binary} for kind in media_types}
    encoding = {"image": {"contentType": ", ".join(media_types)}}
    content["multipart/form-data"] = {"schema": one_field("image", binary), "encoding": encoding}
    content["application/json"] = {"schema": one_field(name, base64)}
    return {"requestBody": {"required": True, "content": content}}


def json_body(schema: dict[str, Any], *, required: bool) -> dict[str, Any]:
    """Describe a JSON body, with its definitions inlined."""
    definitions = schema.get("$defs", {})

    def resolve(value: Any) -> Any:
        if isinstance(value, dict):
            if "$ref" in value:
                return resolve(definitions[value["$ref"].rpartition("/")[2]])
            return {key: resolve(inner) for key, inner in value.items() if key != "$defs"}
        return [resolve(inner) for inner in value] if isinstance(value, list) else value

    return {"requestBody": {"required": required, "content": {"application/json": {"schema": resolve(schema)}}}}


def infer_response() -> dict[str, Any]:
    """Describe a response of JSON, or of JSON followed by bytes."""
    return {
        "model": InferResponse,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        "headers": {BINARY_HEADER: {"description": "Bytes of JSON before the tensors.", "schema": {"type": "string"}}},
    }


def complete(app: FastAPI, closed: frozenset[str]) -> dict[str, Any]:
    """Generate the OpenAPI document, without FastAPI's own error schema, and with keys for the closed scopes."""
    if app.openapi_schema:
        return app.openapi_schema
    document = FastAPI.openapi(app)
    for name in ("HTTPValidationError", "ValidationError"):
        document.get("components", {}).get("schemas", {}).pop(name, None)
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    for operations in document["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)
            if operation.pop("x-scope", None) in closed:
                operation["security"] = [{"bearer": []}, {"header": []}]
                for status in (401, 403):
                    operation["responses"][str(status)] = {"description": DESCRIPTIONS[status], "content": content}
    if closed:
        document.setdefault("components", {})["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        }
    app.openapi_schema = document
    return document
