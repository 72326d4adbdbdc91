"""JSON bodies of requests and responses, and their descriptions in the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from bitedge.serve.models.repository import NAME, VERSION

ModelName = Annotated[str, StringConstraints(pattern=f"^{NAME.pattern}$")]
ModelVersion = Annotated[str, StringConstraints(pattern=f"^{VERSION.pattern}$")]


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
    """A tensor of the Open Inference Protocol; in a response, with its data."""

    name: str
    datatype: str
    shape: list[int]
    parameters: dict[str, int] | None = None
    data: list[Any] | None = None


class ModelMetadata(Closed):
    """What a model takes and gives; -1 is the batch."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[Tensor]
    outputs: list[Tensor]


class InputParameters(BaseModel):
    """Parameters of an input tensor; others are ignored."""

    binary_data_size: int | None = Field(None, strict=True, ge=0)


class RequestInput(BaseModel):
    """An input tensor: `data`, or bytes after the JSON as `binary_data_size` says."""

    name: str
    shape: list[int]
    datatype: str
    parameters: InputParameters = InputParameters.model_validate({})
    data: list[Any] | None = None


class OutputParameters(BaseModel):
    """Parameters of an output tensor; others are ignored."""

    classification: int = Field(0, strict=True, ge=0, description="Name so many of the best classes.")
    binary_data: bool | None = None


class RequestOutput(BaseModel):
    """An output that is asked for."""

    name: str
    parameters: OutputParameters = OutputParameters.model_validate({})


class RequestParameters(BaseModel):
    """Parameters of a request; others are ignored."""

    timeout: float = Field(0, strict=True, ge=0, allow_inf_nan=False, description="Microseconds; 0: the default.")
    binary_data_output: bool = False


class InferRequest(BaseModel):
    """A request for inference."""

    id: str | None = None
    parameters: RequestParameters = RequestParameters.model_validate({})
    inputs: list[RequestInput] = Field(min_length=1, max_length=1)
    outputs: list[RequestOutput] = []


class InferResponse(Closed):
    """The answer to a request for inference."""

    model_name: str
    model_version: str
    id: str | None = None
    outputs: list[Tensor]


Responses = dict[int | str, dict[str, Any]]
BINARY_HEADER = "Inference-Header-Content-Length"
RETRY_AFTER = {
    "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "string", "pattern": "^[1-9][0-9]*$"}}
}
BINARY = {"type": "string", "format": "binary"}
ERRORS: Responses = {  # of every route
    "4XX": {"model": Error, "description": "The request is wrong, or not allowed; the message says how."},
    429: {"model": Error, "description": "Too many requests from one caller.", "headers": RETRY_AFTER},
    503: {"model": Error, "description": "No capacity now, or the deadline passed.", "headers": RETRY_AFTER},
    504: {"model": Error, "description": "The work did not end in time."},
}
INFER_RESPONSE: Responses = {
    200: {
        "model": InferResponse,
        "content": {"application/octet-stream": {"schema": BINARY}},
        "headers": {BINARY_HEADER: {"description": "Bytes of JSON before the tensors.", "schema": {"type": "string"}}},
    }
}


def images_body(media_types: tuple[str, ...], query: type[BaseModel], *, multiple: bool) -> dict[str, Any]:
    """Describe the query and the request body of a route that takes images."""
    base64 = {"type": "string", "contentEncoding": "base64", "minLength": 4}
    name = "images" if multiple else "image"

    def one_field(name: str, schema: dict[str, Any]) -> dict[str, Any]:
        schema = {"type": "array", "items": schema, "minItems": 1, "maxItems": 64} if multiple else schema
        return {"type": "object", "properties": {name: schema}, "required": [name], "additionalProperties": False}

    content: dict[str, Any] = {} if multiple else {kind: {"schema": BINARY} for kind in media_types}
    encoding = {"image": {"contentType": ", ".join(media_types)}}
    content["multipart/form-data"] = {"schema": one_field("image", BINARY), "encoding": encoding}
    content["application/json"] = {"schema": one_field(name, base64)}
    fields = query.model_json_schema()["properties"].items()
    parameters = [{"name": name, "in": "query", "required": False, "schema": schema} for name, schema in fields]
    return {"parameters": parameters, "requestBody": {"required": True, "content": content}}


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
