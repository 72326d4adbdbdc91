"""Tensors of the Open Inference Protocol on the wire: JSON, and Triton's binary and classification extensions."""

from __future__ import annotations

import math
import re
import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import ValidationError

from bitedge.serve.api.errors import MediaTypeError, ServeError, TooLargeError
from bitedge.serve.api.schemas import BINARY_HEADER, InferRequest, RequestInput
from bitedge.serve.inference.job import rank
from bitedge.serve.models.backends import ServedModel

DTYPES: dict[str, np.dtype[Any]] = {"UINT8": np.dtype("u1"), "FP32": np.dtype("<f4")}
WINDOW_BITS = {"gzip": 31, "deflate": 15}


@dataclass(frozen=True)
class ParsedInferRequest:
    """A request for inference, checked against its model."""

    tensor: NDArray[Any]
    binary: bool = True  # the output is requested as bytes after the JSON
    classes: int = 0  # so many classes are requested; 0: the tensor itself
    id: str | None = None
    timeout_us: float = 0  # 0: the default


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
        raise TooLargeError(f"a request may have {limit} bytes, also when it is unpacked")
    if not machine.eof:
        raise ServeError(f"the {encoding} body is cut off")
    return plain


def largest_request(model: ServedModel, max_images: int) -> int:
    """Return how many bytes a request for a model can need: as JSON, a number takes 26 characters at most."""
    return 65_536 + 26 * max_images * math.prod(model.input_shape)


def parse(body: bytes, header_length: str | None, model: ServedModel, max_images: int) -> ParsedInferRequest:
    """Read a request: JSON alone, JSON and bytes, or bytes alone (header length 0)."""
    if header_length == "0":
        return ParsedInferRequest(from_bytes(body, (1, *model.input_shape), model.input_type))
    length = len(body)
    if header_length is not None:
        if not re.fullmatch("[0-9]{1,12}", header_length) or int(header_length) > length:
            raise ServeError(f"{BINARY_HEADER}: expected a length within the body, got {header_length!r}")
        length = int(header_length)
    try:
        fields = orjson.loads(body[:length])
    except (ValueError, RecursionError) as error:
        raise ServeError(f"the request is not JSON: {str(error)[:200]}") from None
    return check_request(fields, body[length:], model, max_images)


def check_request(fields: Any, binary: bytes, model: ServedModel, max_images: int) -> ParsedInferRequest:
    """Check a request of the protocol, with the bytes of its tensor if they are apart."""
    try:
        request = InferRequest.model_validate(without_nulls(fields))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ServeError(f"the request is not as the protocol says: {where}: {first['msg']}") from None
    tensor = read_input(request.inputs[0], binary, model, max_images)
    names = [output.name[:80] for output in request.outputs]
    if names not in ([], [model.output_name]):
        raise ServeError(f"expected the output {model.output_name}, once, got {', '.join(names[:4])}")
    as_binary, classes = request.parameters.binary_data_output, 0
    if request.outputs:
        own = request.outputs[0].parameters
        as_binary = as_binary if own.binary_data is None else own.binary_data
        classes = min(own.classification, model.output_count)
    return ParsedInferRequest(tensor, as_binary, classes, request.id, request.parameters.timeout)


def without_nulls(value: Any) -> Any:
    """Leave out optional fields that are null, as some clients send them."""
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [without_nulls(inner) for inner in value]
    return value


def read_input(source: RequestInput, binary: bytes, model: ServedModel, max_images: int) -> NDArray[Any]:
    """Return the one input tensor."""
    shape = tuple(source.shape)
    if source.name != model.input_name or source.datatype != model.input_type:
        expected = f"{model.input_name} of type {model.input_type}"
        raise ServeError(f"expected the input {expected}, got {source.name[:80]} of type {source.datatype[:20]}")
    if len(shape) != 4 or shape[1:] != model.input_shape or not 1 <= shape[0] <= max_images:
        expected = f"[1 to {max_images}, {', '.join(map(str, model.input_shape))}]"
        raise ServeError(f"input {source.name}: expected shape {expected}, got {list(shape)}")
    size = source.parameters.binary_data_size
    if (size is None) == (source.data is None) or (size or 0) != len(binary):
        expected = "expected data, or binary_data_size and so many bytes after the JSON"
        raise ServeError(f"input {source.name}: {expected}; binary_data_size is {size}, and {len(binary)} bytes follow")
    if source.data is None:
        return from_bytes(binary, shape, source.datatype)
    return from_json(source.data, shape, source.datatype)


def from_bytes(data: bytes, shape: tuple[int, ...], datatype: str) -> NDArray[Any]:
    """Read little-endian numbers, outermost dimension first."""
    dtype = DTYPES[datatype]
    expected = math.prod(shape) * dtype.itemsize
    if len(data) != expected:
        raise ServeError(f"expected {expected} bytes for {datatype} of shape {list(shape)}, got {len(data)}")
    return finite(np.frombuffer(data, dtype).reshape(shape))


def from_json(data: list[Any], shape: tuple[int, ...], datatype: str) -> NDArray[Any]:
    """Read numbers in a list, nested or flat."""
    expected = f"{math.prod(shape)} numbers of type {datatype}, nested as {list(shape)} or flat"
    try:
        values = np.asarray(data)
    except (ValueError, OverflowError):
        raise ServeError(f"expected {expected}, got a list that is not rectangular") from None
    kinds = "iu" if datatype == "UINT8" else "iuf"
    if values.dtype.kind not in kinds or values.shape not in (shape, (math.prod(shape),)):
        raise ServeError(f"expected {expected}, got {values.dtype} of shape {list(values.shape)}")
    if datatype == "UINT8" and (values.min() < 0 or values.max() > 255):
        raise ServeError(f"expected numbers from 0 to 255, got {values.min()} to {values.max()}")
    return finite(values.reshape(shape).astype(DTYPES[datatype]))


def finite(tensor: NDArray[Any]) -> NDArray[Any]:
    """Refuse what no network has a meaning for."""
    if tensor.dtype.kind == "f" and not np.isfinite(tensor).all():
        raise ServeError("expected finite numbers, got an infinity or a NaN")
    return tensor


def output_tensor(
    model: ServedModel, outputs: NDArray[np.float32], parsed: ParsedInferRequest
) -> tuple[dict[str, Any], list[str]]:
    """Describe the output; return also `value:index:label` of the best classes, if they are requested."""
    if not parsed.classes:
        return {"name": model.output_name, "shape": list(outputs.shape), "datatype": "FP32"}, []
    ranked = rank(outputs, parsed.classes)
    texts = [f"{value:f}:{i}:{model.labels[i]}" for row in ranked for i, value in row]
    return {"name": model.output_name, "shape": [len(outputs), parsed.classes], "datatype": "BYTES"}, texts


def encode(outputs: NDArray[np.float32], texts: list[str]) -> bytes:
    """Encode an output as bytes; in a BYTES tensor, every element has its length as uint32 before it."""
    if not texts:
        return outputs.astype("<f4").tobytes()
    return b"".join(struct.pack("<I", len(text)) + text for text in (text.encode() for text in texts))


def respond(model: ServedModel, outputs: NDArray[np.float32], parsed: ParsedInferRequest) -> tuple[bytes, int | None]:
    """Return the body of the answer, and the length of its JSON when bytes follow it."""
    output, texts = output_tensor(model, outputs, parsed)
    answer: dict[str, Any] = {"model_name": model.name, "model_version": model.version, "outputs": [output]}
    if parsed.id is not None:
        answer["id"] = parsed.id
    if not parsed.binary:
        output["data"] = texts or outputs.ravel().tolist()
        return orjson.dumps(answer), None
    data = encode(outputs, texts)
    output["parameters"] = {"binary_data_size": len(data)}
    header = orjson.dumps(answer)
    return header + data, len(header)
