"""A small Python client (extra `client`): `Client` for programs, `AsyncClient` for event loops.

Requests that are shed (429, 503) or meet a closed connection are sent again, after the time that `Retry-After` names.
"""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from typing import Any

import httpx2

RETRIED = (429, 503)
Image = bytes | str | Path  # an encoded image, or the path of its file


class ClientError(Exception):
    """The service refused a request; `status` is the HTTP status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class _Base:
    """What both clients share: how to make a request, when to send it again, and how to read its response."""

    def __init__(
        self, url: str = "http://127.0.0.1:8080", *, key: str | None = None, retries: int = 3, timeout: float = 30.0
    ) -> None:
        self._retries = retries
        self._options: dict[str, Any] = {
            "base_url": url.rstrip("/") + "/",
            "headers": {"x-api-key": key} if key else {},
            "timeout": timeout,
        }

    def _delay(self, attempt: int, response: httpx2.Response | None) -> float | None:
        """Return how long to wait before the next attempt, or None if this was the last."""
        if attempt >= self._retries or (response is not None and response.status_code not in RETRIED):
            return None
        named = response.headers.get("retry-after", "") if response is not None else ""
        return float(named) if named.isdecimal() else 0.1 * 2**attempt * random.uniform(0.5, 1.5)

    @staticmethod
    def _body(image: Image) -> bytes:
        return image if isinstance(image, bytes) else Path(image).read_bytes()

    @staticmethod
    def _query(**values: Any) -> dict[str, Any]:
        return {"params": {name: value for name, value in values.items() if value is not None}}

    @classmethod
    def _classify(cls, image: Image, **query: Any) -> dict[str, Any]:
        return {"content": cls._body(image), **cls._query(**query)}

    @classmethod
    def _batch(cls, images: list[Image], **query: Any) -> dict[str, Any]:
        return {
            "files": [("image", (str(i), cls._body(image))) for i, image in enumerate(images)],
            **cls._query(**query),
        }

    @staticmethod
    def _result(response: httpx2.Response) -> dict[str, Any]:
        if response.status_code != 200:
            try:
                message = response.json()["error"]
            except (ValueError, KeyError, TypeError):
                message = response.text[:200]
            raise ClientError(message, response.status_code)
        result: dict[str, Any] = response.json()
        return result


class Client(_Base):
    """Classify images; use it as a context manager, or close it."""

    def __init__(self, url: str = "http://127.0.0.1:8080", **options: Any) -> None:
        super().__init__(url, **options)
        self._http = httpx2.Client(**self._options)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _send(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        for attempt in range(self._retries + 1):
            response = None
            try:
                response = self._http.request(method, path, **request)
            except (httpx2.ConnectError, httpx2.RemoteProtocolError, httpx2.ReadError):
                if attempt == self._retries:
                    raise
            delay = self._delay(attempt, response)
            if delay is None and response is not None:
                return self._result(response)
            time.sleep(delay or 0.0)
        raise AssertionError("the last attempt returns or raises")

    def classify(self, image: Image, *, model: str | None = None, top_k: int | None = None) -> dict[str, Any]:
        """Classify one image."""
        return self._send("POST", "v1/classify", **self._classify(image, model=model, top_k=top_k))

    def classify_batch(
        self, images: list[Image], *, model: str | None = None, top_k: int | None = None
    ) -> dict[str, Any]:
        """Classify several images; each has its predictions or its error."""
        return self._send("POST", "v1/classify/batch", **self._batch(images, model=model, top_k=top_k))

    def models(self) -> list[dict[str, Any]]:
        """List all models."""
        listed: list[dict[str, Any]] = self._send("GET", "v1/models")["models"]
        return listed


class AsyncClient(_Base):
    """The same for event loops."""

    def __init__(self, url: str = "http://127.0.0.1:8080", **options: Any) -> None:
        super().__init__(url, **options)
        self._http = httpx2.AsyncClient(**self._options)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _send(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        for attempt in range(self._retries + 1):
            response = None
            try:
                response = await self._http.request(method, path, **request)
            except (httpx2.ConnectError, httpx2.RemoteProtocolError, httpx2.ReadError):
                if attempt == self._retries:
                    raise
            delay = self._delay(attempt, response)
            if delay is None and response is not None:
                return self._result(response)
            await asyncio.sleep(delay or 0.0)
        raise AssertionError("the last attempt returns or raises")

    async def classify(self, image: Image, *, model: str | None = None, top_k: int | None = None) -> dict[str, Any]:
        """Classify one image."""
        return await self._send("POST", "v1/classify", **self._classify(image, model=model, top_k=top_k))

    async def classify_batch(
        self, images: list[Image], *, model: str | None = None, top_k: int | None = None
    ) -> dict[str, Any]:
        """Classify several images; each has its predictions or its error."""
        return await self._send("POST", "v1/classify/batch", **self._batch(images, model=model, top_k=top_k))

    async def models(self) -> list[dict[str, Any]]:
        """List all models."""
        listed: list[dict[str, Any]] = (await self._send("GET", "v1/models"))["models"]
        return listed
