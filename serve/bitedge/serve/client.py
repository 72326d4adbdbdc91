"""A small Python client (extra `client`): `Client` for programs, `AsyncClient` for event loops.

Requests that are shed (429, 503) or meet a closed connection are sent again, after the time that `Retry-After` names.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import httpx2

RETRIED = (429, 503)
BROKEN = (httpx2.ConnectError, httpx2.RemoteProtocolError, httpx2.ReadError)
Image = bytes | str | Path  # an encoded image, or the path of its file
Result = TypeVar("Result")


class ClientError(Exception):
    """The service refused a request; `status` is the HTTP status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class _Base(Generic[Result]):
    """What both clients share: the requests, when to send them again, and how to read a response."""

    _library: Any

    def __init__(
        self, url: str = "http://127.0.0.1:8080", *, key: str | None = None, retries: int = 3, timeout: float = 30.0
    ) -> None:
        headers = {"x-api-key": key} if key else {}
        self._retries = retries
        self._http = self._library(base_url=url.rstrip("/") + "/", headers=headers, timeout=timeout)

    def _send(self, method: str, path: str, **request: Any) -> Result:
        raise NotImplementedError

    def classify(self, image: Image, *, model: str | None = None, top_k: int | None = None) -> Result:
        """Classify one image."""
        return self._send("POST", "v1/classify", content=encoded(image), params=query(model=model, top_k=top_k))

    def classify_batch(self, images: list[Image], *, model: str | None = None, top_k: int | None = None) -> Result:
        """Classify several images; each of the `results` has its predictions or its error."""
        files = [("image", (str(i), encoded(image))) for i, image in enumerate(images)]
        return self._send("POST", "v1/classify/batch", files=files, params=query(model=model, top_k=top_k))

    def models(self) -> Result:
        """List all `models`."""
        return self._send("GET", "v1/models")

    def _delay(self, attempt: int, response: httpx2.Response | None) -> float | None:
        """Return how long to wait before the next attempt, or None if this was the last."""
        if attempt >= self._retries or (response is not None and response.status_code not in RETRIED):
            return None
        named = response.headers.get("retry-after", "") if response is not None else ""
        return float(named) if named.isdecimal() else 0.1 * 2**attempt * random.uniform(0.5, 1.5)


class Client(_Base[dict[str, Any]]):
    """Classify images; use it as a context manager, or close it."""

    _library = httpx2.Client

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        attempt = 0
        while True:
            try:
                response = self._http.request(method, path, **request)
            except BROKEN:
                if (delay := self._delay(attempt, None)) is None:
                    raise
            else:
                if (delay := self._delay(attempt, response)) is None:
                    return result_of(response)
            time.sleep(delay)
            attempt += 1


class AsyncClient(_Base[Awaitable[dict[str, Any]]]):
    """The same for event loops."""

    _library = httpx2.AsyncClient

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _send(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        attempt = 0
        while True:
            try:
                response = await self._http.request(method, path, **request)
            except BROKEN:
                if (delay := self._delay(attempt, None)) is None:
                    raise
            else:
                if (delay := self._delay(attempt, response)) is None:
                    return result_of(response)
            await asyncio.sleep(delay)
            attempt += 1


def encoded(image: Image) -> bytes:
    """Return the bytes of an image."""
    return image if isinstance(image, bytes) else Path(image).read_bytes()


def query(**values: Any) -> dict[str, Any]:
    """Leave out what was not given."""
    return {name: value for name, value in values.items() if value is not None}


def result_of(response: httpx2.Response) -> dict[str, Any]:
    """Return the JSON of a response, or raise its error."""
    if response.status_code == 200:
        result: dict[str, Any] = response.json()
        return result
    try:
        message = response.json()["error"]
    except (ValueError, KeyError, TypeError):
        message = response.text[:200]
    raise ClientError(message, response.status_code)
