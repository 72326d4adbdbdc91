"""Read the images of a request: a raw body, the file parts of a multipart form, or base64 in JSON."""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import TYPE_CHECKING

import orjson
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from bitedge.serve.api.errors import ImageError, MediaTypeError, ServeError
from bitedge.serve.inference.preprocessing import MEDIA_TYPES
from bitedge.serve.security.dependencies import Service

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

# Content types of a raw body; its bytes decide. The last one is what curl --data-binary sends by default.
RAW_TYPES = frozenset(
    ("", *MEDIA_TYPES, "image/*", "image/jpg", "application/octet-stream", "application/x-www-form-urlencoded")
)

PART_NAMES = frozenset((b"image", b"images", b"image[]", b"file", b"files", b"files[]"))
MAX_PARTS = 4096


class PartCollector:
    """Collects the parts of a multipart body that are images: named so, or sent with a file name.

    Parts stay in memory: the body already is, and a container may have no disk to write to.
    """

    def __init__(self) -> None:
        self.images: list[bytes] = []
        self._parts = 0
        self._data = bytearray()
        self._name = bytearray()
        self._value = bytearray()
        self._wanted = False

    def callbacks(self) -> MultipartCallbacks:
        """The functions that the parser calls."""
        return {
            "on_part_begin": self._begin,
            "on_header_field": lambda data, start, end: self._name.extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._value.extend(data[start:end]),
            "on_header_end": self._end_of_header,
            "on_part_data": lambda data, start, end: self._data.extend(data[start:end]),
            "on_part_end": self._end,
        }

    def _begin(self) -> None:
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise ServeError(f"a form may have {MAX_PARTS} parts")
        self._data.clear()
        self._wanted = False

    def _end_of_header(self) -> None:
        if self._name.lower() == b"content-disposition":
            _, options = parse_options_header(bytes(self._value))
            self._wanted = b"filename" in options or options.get(b"name") in PART_NAMES
        self._name.clear()
        self._value.clear()

    def _end(self) -> None:
        if self._wanted:
            self.images.append(bytes(self._data))


def media_type(request: Request) -> str:
    """Return the content type without its parameters."""
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise MediaTypeError(f"content-encoding {encoding[:40]} is not accepted; images are compressed already")
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_images(request: Request, service: Service, *, multiple: bool) -> list[bytes]:
    """Read the images of a request, in order."""
    kind = media_type(request)
    if kind == "multipart/form-data":
        body = await service.read_body(request)
        content_type, most = request.headers["content-type"], service.settings.max_images
        images = await service.parse(read_parts, len(body), content_type, body, most)
        if not multiple and len(images) > 1:
            raise ServeError(f"expected one image, got {len(images)}; POST /v1/classify/batch takes several")
        return images
    if kind == "application/json":
        body = await service.read_body(request)
        return await service.parse(read_base64, len(body), body, multiple, service.settings.max_images)
    if kind not in RAW_TYPES or multiple:
        expected = "multipart/form-data or application/json"
        expected = expected if multiple else f"a raw body ({', '.join(MEDIA_TYPES)}), {expected}"
        raise MediaTypeError(f"expected {expected}, got content type {kind[:80] or 'none'}")
    body = await service.read_body(request)
    if not body:
        raise ImageError("expected an image as the body, got no bytes at all")
    return [body]


def read_parts(content_type: str, body: bytes, max_images: int) -> list[bytes]:
    """Return the images of a multipart body."""
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        raise ServeError("the multipart form cannot be read: its content type names no boundary")
    collector = PartCollector()
    try:
        parser = MultipartParser(boundary, collector.callbacks())
        parser.write(body)
        parser.finalize()
    except FormParserError as error:
        raise ServeError(f"the multipart form cannot be read: {str(error)[:200]}") from None
    if not collector.images:
        raise ServeError("expected a form with images, got none; send each as a part named image")
    return checked_count(collector.images, max_images)


def read_base64(body: bytes, multiple: bool, max_images: int) -> list[bytes]:
    """Return the images of a JSON body: `{"image": "..."}`, or `{"images": ["...", ...]}`."""
    field = "images" if multiple else "image"
    expected = '{"images": ["base64", ...]}' if multiple else '{"image": "base64"}'
    try:
        value = orjson.loads(body)
        texts = value[field] if multiple else [value[field]]
        if len(value) != 1 or not isinstance(texts, list) or not texts:
            raise ServeError(f"expected {expected} and nothing else")
        images = [b64decode(text, validate=True) for text in checked_count(texts, max_images)]
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, binascii.Error) as error:
        if isinstance(error, ServeError):
            raise
        raise ServeError(f"expected {expected}, got JSON or base64 that cannot be read: {str(error)[:100]}") from None
    if not all(images):
        raise ImageError("expected an image, got no bytes at all")
    return images


def checked_count(images: list[bytes], most: int) -> list[bytes]:
    """Refuse more images than are allowed."""
    if len(images) > most:
        raise ServeError(f"expected at most {most} images, got {len(images)}; send several requests")
    return images
