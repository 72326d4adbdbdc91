"""The shapes of answers, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

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
