"""Tensors of the Open Inference Protocol on the wire: JSON, and Triton's binary and classification extensions."""

from __future__ import annotations

import math
import re
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import ValidationError

from bitedge.serve.api.errors import BodyTooLargeError, MediaTypeError, ServeError
from bitedge.serve.api.schemas import InferRequest, RequestInput, RequestOutput
from bitedge.serve.inference.job import rank
from bitedge.serve.models.backends import ServedModel

DTYPES: dict[str, np.dtype[Any]] = {"UINT8": np.dtype("u1"), "FP32": np.dtype("<f4")}
WINDOW_BITS = {"gzip": 31, "deflate": 15}


@dataclass(frozen=True)
class OutputSpec:
    """The form in which the output is requested."""

    binary: bool
    classes: int = 0  # 0: the tensor itself


@dataclass(frozen=True)
class ParsedInferRequest:
    """A request for inference, checked against its model."""

    tensor: NDArray[Any]
    output: OutputSpec
    id: str | None
    timeout_us: float | None


def decompress(body: bytes, encoding: str, limit: int) -> bytes:
    """Undo a content encoding, to at most `limit` bytes."""
    if encoding in ("", "identity"):
        return body
    if encoding not in WINDOW_BITS:
        raise MediaTypeError(f"content-encoding {encoding} is not accepted; use gzip or deflate")
    try:
        machine = zlib.decompressobj(WINDOW_BITS[encoding])
        plain = machine.decompress(body, limit + 1)
    except zlib.error:
        raise ServeError(f"the body is not {encoding}") from None
    if len(plain) > limit:
        raise BodyTooLargeError(f"a request may have {limit} bytes, also when it is unpacked")
    if not machine.eof:
        raise ServeError(f"the {encoding} body is cut off")
    return plain


def parse(body: bytes, header_length: str | None, model: ServedModel, max_images: int) -> ParsedInferRequest:
    """Read a request: JSON alone, JSON and bytes, or bytes alone (header length 0)."""
    if header_length is None:
        text, binary = body, b""
    else:
        if not re.fullmatch("[0-9]{1,12}", header_length) or int(header_length) > len(body):
            raise ServeError(
                f"Inference-Header-Content-Length: expected a length within the body, got {header_length!r}"
            )
        text, binary = body[: int(header_length)], body[int(header_length) :]
    if header_length == "0":
        tensor = from_bytes(binary, (1, *model.input_shape), model.input_type)
        return ParsedInferRequest(tensor, OutputSpec(binary=True), None, None)
    try:
        request = InferRequest.model_validate(orjson.loads(text))
    except (ValueError, RecursionError) as error:
        raise ServeError(f"the request is not as the protocol says: {first_problem(error)}") from None
    parameters = request.parameters or {}
    tensor = read_input(request.inputs[0], binary, model, max_images)
    output = read_output(request.outputs, parameters, model)
    return ParsedInferRequest(tensor, output, request.id, read_timeout(parameters.get("timeout")))


def read_timeout(timeout: Any) -> float | None:
    """Check the parameter `timeout`, in microseconds; 0 and none mean the default."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 <= timeout < math.inf:
        raise ServeError(f"parameter timeout: expected microseconds, got {timeout!r}")
    return float(timeout) or None


def largest_request(model: ServedModel, max_images: int) -> int:
    """Return how many bytes a request for a model can need: as JSON, a number takes 26 characters at most."""
    return 65_536 + 26 * max_images * math.prod(model.input_shape)


def first_problem(error: Exception) -> str:
    """The first thing that is wrong with a request, in a few words."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(error)[:200]


def read_input(source: RequestInput, binary: bytes, model: ServedModel, max_images: int) -> NDArray[Any]:
    """The one input tensor."""
    shape = tuple(source.shape)
    if source.name != model.input_name or source.datatype != model.input_type:
        expected = f"{model.input_name} of type {model.input_type}"
        raise ServeError(f"expected the input {expected}, got {source.name[:80]} of type {source.datatype[:20]}")
    if len(shape) != 4 or shape[1:] != model.input_shape or not 1 <= shape[0] <= max_images:
        expected = f"[1 to {max_images}, {', '.join(map(str, model.input_shape))}]"
        raise ServeError(f"input {source.name}: expected shape {expected}, got {list(shape)}")
    size = (source.parameters or {}).get("binary_data_size")
    if size is None:
        if source.data is None:
            raise ServeError(f"input {source.name}: expected data, or binary_data_size and bytes after the JSON")
        return from_json(source.data, shape, source.datatype)
    if source.data is not None or size != len(binary) or isinstance(size, bool):
        raise ServeError(f"input {source.name}: binary_data_size is {size!r}, and {len(binary)} bytes follow the JSON")
    return from_bytes(binary, shape, source.datatype)


def from_bytes(data: bytes, shape: tuple[int, ...], datatype: str) -> NDArray[Any]:
    """Little-endian numbers, outermost dimension first."""
    dtype = DTYPES[datatype]
    expected = int(np.prod(shape)) * dtype.itemsize
    if len(data) != expected:
        raise ServeError(f"expected {expected} bytes for {datatype} of shape {list(shape)}, got {len(data)}")
    return finite(np.frombuffer(data, dtype).reshape(shape))


def from_json(data: list[Any], shape: tuple[int, ...], datatype: str) -> NDArray[Any]:
    """Numbers in a list, nested or flat."""
    expected = f"{int(np.prod(shape))} numbers of type {datatype}, nested as {list(shape)} or flat"
    try:
        values = np.asarray(data)
    except (ValueError, OverflowError):
        raise ServeError(f"expected {expected}, got a list that is not rectangular") from None
    kinds = "iu" if datatype == "UINT8" else "iuf"
    if values.dtype.kind not in kinds or values.shape not in (shape, (int(np.prod(shape)),)):
        raise ServeError(f"expected {expected}, got {values.dtype} of shape {list(values.shape)}")
    if datatype == "UINT8" and (values.min() < 0 or values.max() > 255):
        raise ServeError(f"expected numbers from 0 to 255, got {values.min()} to {values.max()}")
    return finite(values.reshape(shape).astype(DTYPES[datatype]))


def finite(tensor: NDArray[Any]) -> NDArray[Any]:
    """Refuse what no network has a meaning for."""
    if tensor.dtype.kind == "f" and not np.isfinite(tensor).all():
        raise ServeError("expected finite numbers, got an infinity or a NaN")
    return tensor


def read_output(outputs: list[RequestOutput] | None, parameters: Mapping[str, Any], model: ServedModel) -> OutputSpec:
    """Which form of the output is asked for."""
    binary = parameters.get("binary_data_output") is True
    if not outputs:
        return OutputSpec(binary=binary)
    if len(outputs) > 1 or outputs[0].name != model.output_name:
        names = ", ".join(output.name[:80] for output in outputs[:4])
        raise ServeError(f"expected the output {model.output_name}, once, got {names}")
    own = outputs[0].parameters or {}
    classes = read_classes(own.get("classification", 0))
    return OutputSpec(binary=own.get("binary_data", binary) is True, classes=min(classes, model.output_count))


def read_classes(classes: Any) -> int:
    """Check the parameter `classification`: how many classes to name; 0 asks for the tensor itself."""
    whole = isinstance(classes, (int, float)) and not isinstance(classes, bool) and math.isfinite(classes)
    if not whole or classes < 0 or classes != int(classes):
        raise ServeError(f"parameter classification: expected a number of classes, got {classes!r}")
    return int(classes)


def respond(model: ServedModel, outputs: NDArray[np.float32], parsed: ParsedInferRequest) -> tuple[bytes, int | None]:
    """The body of the answer, and the length of its JSON when bytes follow it."""
    output: dict[str, Any] = {"name": model.output_name, "shape": list(outputs.shape), "datatype": "FP32"}
    texts: list[str] = []
    if parsed.output.classes:
        texts = class_strings(model, outputs, parsed.output.classes)
        output |= {"shape": [len(outputs), parsed.output.classes], "datatype": "BYTES"}
    answer: dict[str, Any] = {"model_name": model.name, "model_version": model.version, "outputs": [output]}
    if parsed.id is not None:
        answer["id"] = parsed.id
    if not parsed.output.binary:
        output["data"] = texts or outputs.ravel().tolist()
        return orjson.dumps(answer), None
    data = encode_bytes(texts) if texts else outputs.astype("<f4").tobytes()
    output["parameters"] = {"binary_data_size": len(data)}
    header = orjson.dumps(answer)
    return header + data, len(header)


def encode_bytes(texts: list[str]) -> bytes:
    """Encode a BYTES tensor: the length of every element as uint32, then its bytes."""
    encoded = [text.encode() for text in texts]
    return b"".join(struct.pack("<I", len(text)) + text for text in encoded)


def class_strings(model: ServedModel, outputs: NDArray[np.float32], count: int) -> list[str]:
    """Return `value:index:label` of the best classes of every image."""
    return [f"{value:f}:{i}:{model.labels[i]}" for row in rank(outputs, count) for i, value in row]
