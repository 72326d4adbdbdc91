"""Take images out of a request: a raw body, or the file parts of a multipart form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from bitedge.serve.api.errors import ImageError, MediaTypeError, ServeError
from bitedge.serve.inference.preprocessing import MEDIA_TYPES
from bitedge.serve.service import Service

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

# What a raw body may call itself; the bytes decide. curl --data-binary says the last one unless told otherwise.
RAW_TYPES = frozenset(
    ("", *MEDIA_TYPES, "image/*", "image/jpg", "application/octet-stream", "application/x-www-form-urlencoded")
)

PART_NAMES = frozenset((b"image", b"images", b"image[]", b"file", b"files", b"files[]"))
MAX_PARTS = 4096


class PartCollector:
    """Collects the parts of a multipart body that are images: named so, or sent with a file name.

    Every part stays in memory: the body already is, and a container may have no disk to write to.
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
    """The content type without its parameters."""
    headers: Mapping[bytes, bytes] = request.scope["bitedge"].headers
    encoding = headers.get(b"content-encoding")
    if encoding is not None and encoding.lower() != b"identity":
        raise MediaTypeError(
            f"content-encoding {encoding.decode('latin-1')} is not accepted; images are compressed already"
        )
    return headers.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1")


async def read_images(request: Request, service: Service, *, several: bool) -> list[bytes]:
    """The images of a request, in order."""
    kind = media_type(request)
    if kind == "multipart/form-data":
        images = read_parts(
            request.headers["content-type"], await service.read_body(request), service.config.max_images
        )
        if not several and len(images) > 1:
            raise ServeError(f"expected one image, got {len(images)}; POST /v1/classify/batch takes several")
        return images
    if kind not in RAW_TYPES or several:
        expected = "multipart/form-data" if several else f"a raw body ({', '.join(MEDIA_TYPES)}) or multipart/form-data"
        raise MediaTypeError(f"expected {expected}, got content type {kind or 'none'}")
    body = await service.read_body(request)
    if not body:
        raise ImageError("expected an image as the body, got no bytes at all")
    return [body]


def read_parts(content_type: str, body: bytes, max_images: int) -> list[bytes]:
    """The images of a multipart body."""
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
    if len(collector.images) > max_images:
        raise ServeError(f"expected at most {max_images} images, got {len(collector.images)}; send several requests")
    return collector.images
