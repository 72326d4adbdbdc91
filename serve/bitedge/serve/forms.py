"""Take images out of a request: a raw body, or the file parts of a multipart form."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from bitedge.serve.errors import ImageError, MediaTypeError, ServeError
from bitedge.serve.images import MEDIA_TYPES
from bitedge.serve.service import Service

# What a raw body may call itself; the bytes decide. curl --data-binary says the last one unless told otherwise.
RAW_TYPES = frozenset(
    ("", *MEDIA_TYPES, "image/*", "image/jpg", "application/octet-stream", "application/x-www-form-urlencoded")
)


class MemoryParser(MultiPartParser):
    """Keeps every part in memory: the body already is, and a container may have no disk to write to."""

    spool_max_size = 1 << 31


def media_type(request: Request) -> str:
    """The content type without its parameters."""
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise MediaTypeError(f"content-encoding {encoding} is not accepted; images are compressed already")
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_images(request: Request, service: Service, *, several: bool) -> list[bytes]:
    """The images of a request, in order."""
    kind = media_type(request)
    if kind == "multipart/form-data":
        images = await read_parts(request.headers, await service.read_body(request), service.config.max_images)
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


async def read_parts(headers: Headers, body: bytes, max_images: int) -> list[bytes]:
    """The file parts of a multipart body."""

    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    try:
        form = await MemoryParser(headers, stream(), max_files=max_images, max_fields=16, max_part_size=4096).parse()
    except MultiPartException as error:
        raise ServeError(f"the multipart form cannot be read: {error.message}") from None
    except (ValueError, KeyError, UnicodeError) as error:
        raise ServeError(f"the multipart form cannot be read: {error}") from None
    try:
        images = [await value.read() for _, value in form.multi_items() if isinstance(value, UploadFile)]
    finally:
        await form.close()
    if not images:
        raise ServeError("expected a form with image files, got none; send each as a file part named image")
    return images
