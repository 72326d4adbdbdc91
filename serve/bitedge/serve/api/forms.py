"""Read the images of a request: a raw body, the file parts of a multipart form, or base64 in JSON."""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import Any

import orjson
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import Field, File, FormParser, parse_options_header
from starlette.requests import Request

from bitedge.serve.api.errors import ImageError, MediaTypeError, ServeError
from bitedge.serve.inference.preprocessing import MEDIA_TYPES
from bitedge.serve.security.dependencies import Service

# Content types of a raw body; its bytes decide. The last one is what curl --data-binary sends by default.
RAW_TYPES = frozenset(
    ("", *MEDIA_TYPES, "image/*", "image/jpg", "application/octet-stream", "application/x-www-form-urlencoded")
)
PART_NAMES = frozenset((b"image", b"images", b"image[]", b"file", b"files", b"files[]"))


async def read_images(request: Request, service: Service, *, multiple: bool) -> list[bytes]:
    """Read the images of a request, in order."""
    content_type, encoding = (request.headers.get(f"content-{name}", "") for name in ("type", "encoding"))
    if encoding.lower() not in ("", "identity"):
        raise MediaTypeError(f"content-encoding {encoding[:40]} is not accepted; images are compressed already")
    kind = content_type.partition(";")[0].strip().lower()
    forms = ("multipart/form-data", "application/json")
    if kind not in forms and (multiple or kind not in RAW_TYPES):
        raw = "" if multiple else f"a raw body ({', '.join(MEDIA_TYPES)}), "
        raise MediaTypeError(f"expected {raw}{' or '.join(forms)}, got content type {kind[:80] or 'none'}")
    body = await service.read_body(request)
    most = service.settings.max_images if multiple else 1
    if kind == "multipart/form-data":
        images = await service.parse(read_parts, len(body), content_type, body, most)
    elif kind == "application/json":
        images = await service.parse(read_base64, len(body), body, multiple, most)
    else:
        images = [body]
    if not all(images):
        raise ImageError("expected an image, got no bytes at all")
    return images


def read_parts(content_type: str, body: bytes, most: int) -> list[bytes]:
    """Return the parts of a form that are images: named so, or sent with a file name."""
    images: list[bytes] = []

    def take(data: bytes | None) -> None:
        images.append(data or b"")
        checked_count(images, most)

    def on_file(file: File) -> None:
        file.file_object.seek(0)
        take(file.file_object.read())

    def on_field(field: Field) -> None:
        if field.field_name in PART_NAMES:
            take(field.value)

    boundary = parse_options_header(content_type)[1].get(b"boundary")
    config = {"MAX_MEMORY_FILE_SIZE": len(body) + 1, "MAX_FIELD_SIZE": len(body)}  # nothing goes to the disk
    try:
        parser = FormParser("multipart/form-data", on_field, on_file, boundary=boundary, config=config)
        parser.write(body)
        parser.finalize()
    except FormParserError as error:
        raise ServeError(f"the multipart form cannot be read: {str(error)[:200]}") from None
    if not images:
        raise ServeError("expected a form with images, got none; send each as a part named image")
    return images


def read_base64(body: bytes, multiple: bool, most: int) -> list[bytes]:
    """Return the images of a JSON body: `{"image": "..."}`, or `{"images": ["...", ...]}`."""
    field = "images" if multiple else "image"
    expected = '{"images": ["base64", ...]}' if multiple else '{"image": "base64"}'
    try:
        value = orjson.loads(body)
        texts = value[field] if multiple else [value[field]]
        if len(value) != 1 or not isinstance(texts, list) or not texts:
            raise ValueError("another shape")
        checked_count(texts, most)
        return [b64decode(text, validate=True) for text in texts]
    except ServeError:
        raise
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise ServeError(f"expected {expected} and nothing else, got what cannot be read: {str(error)[:100]}") from None


def checked_count(images: list[Any], most: int) -> None:
    """Refuse more images than are allowed."""
    if len(images) > most:
        hint = "; POST /v1/classify/batch takes several" if most == 1 else "; send several requests"
        raise ServeError(f"expected at most {most} image{'s' if most > 1 else ''}, got {len(images)}{hint}")
