"""The outermost layer: what every request passes, whichever route it takes.

Request id, API key, rate limit, early shedding, body length, security headers, the access log and the request metrics,
in one plain ASGI class: a request pays for one wrapper, and a request that is shed is answered before its body is read.
"""

from __future__ import annotations

import itertools
import json
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bitedge.serve.access import check_admin, closed_scopes, presented_key, scope_of
from bitedge.serve.api.errors import ServeError
from bitedge.serve.atonce import Connection, classify_at_once
from bitedge.serve.security.headers import EXTENSION, SECURITY_HEADERS
from bitedge.serve.security.keys import authorize
from bitedge.serve.service import ClientGoneError, Service, too_large

access_log = logging.getLogger("bitedge.serve.access")
error_log = logging.getLogger("bitedge.serve.error")

REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
INFERENCE = re.compile(r"/v1/(classify|classify/batch|preview)$|/v2/models/[^/]+(/versions/[^/]+)?/infer$")


# Endpoints that are called without the framework's routing when a request gives no parameters to check: for a network
# that answers in less than a tenth of a millisecond, that routing would be the larger part of the work.
Described = tuple[int, list[tuple[bytes, bytes]], bytes]  # status, headers, body
Direct = Mapping[str, Callable[[Request], Awaitable[Response]]]


@dataclass(slots=True)
class Passage:
    """What is known of a request while it passes; routes add to it for the log."""

    request_id: str
    started: float
    headers: Mapping[bytes, bytes]
    caller: str = ""
    status: int = 0
    reason: str = ""
    model: str = ""
    route: str = ""


class Gate:
    """The application as the server sees it: this layer, and the framework's routes behind it."""

    def __init__(self, app: ASGIApp, service: Service, direct: Direct) -> None:
        self._app = app
        self.service = self._service = service
        self._direct = direct
        self._closed = closed_scopes(service)
        self._run = secrets.token_hex(4)
        self._count = itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it here."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        passage = scope["bitedge"] = self.open(scope)
        extra = [(b"x-request-id", passage.request_id.encode())]
        if EXTENSION not in scope.get("extensions", ()):
            extra += SECURITY_HEADERS

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                passage.status = message["status"]
                message["headers"] = [*message["headers"], *extra]
                if self._service.draining:
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        try:
            self.admit(scope, passage)
            endpoint = self._direct.get(scope["path"])
            if endpoint is not None and scope["method"] == "POST" and not scope["query_string"]:
                response = await endpoint(Request(scope, receive))
                await response(scope, receive, send_with_headers)
            else:
                await self._app(scope, receive, send_with_headers)
        except ClientGoneError:
            passage.status, passage.reason = 499, "disconnected"
        except Exception as error:
            status, headers, body = self.describe(scope, passage, error)
            if passage.status:  # half an answer is out; only closing the connection says that it is not whole
                raise
            await send_with_headers({"type": "http.response.start", "status": status, "headers": headers})
            await send_with_headers({"type": "http.response.body", "body": body})
        finally:
            self.record(scope, passage)

    def take(self, scope: Scope, body: bytes, connection: Connection) -> bool:
        """Take a whole request from the protocol, if it can be answered at once; it then needs no call of this gate."""
        return (
            scope["method"] == "POST" and not scope["query_string"] and classify_at_once(self, scope, body, connection)
        )

    def open(self, scope: Scope) -> Passage:
        """Begin to keep account of a request."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        given = headers.get(b"x-request-id")
        request_id = given.decode() if given and REQUEST_ID.fullmatch(given) else self._new_id()
        return Passage(request_id, time.perf_counter(), headers)

    def _new_id(self) -> str:
        """Unique among all processes; random once, then counted, because asking for randomness gives up the GIL."""
        return f"{self._run}{next(self._count):08x}"

    def admit(self, scope: Scope, passage: Passage) -> None:
        """Refuse what must not, or need not, be read any further."""
        service, path, headers = self._service, scope["path"], passage.headers
        passage.caller = scope["client"][0] if scope.get("client") else "local"
        needed = scope_of(path)
        if needed == "admin":
            check_admin(service, headers)
        if needed in self._closed:
            passage.caller = authorize(service.keys, presented_key(headers), needed).name
        if needed == "infer" and service.limiter is not None:
            service.limiter.take(passage.caller)
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > service.config.max_body_bytes:
            raise too_large(service.config.max_body_bytes)
        if scope["method"] == "POST" and INFERENCE.match(path):
            passage.route = path if path.startswith("/v1/") else "/v2/models/{model}/infer"
            service.batcher.check_room()

    def describe(self, scope: Scope, passage: Passage, error: BaseException) -> Described:
        """The answer to a request that failed: the error's own, or, if the fault is ours, 500 and a line in the log."""
        if isinstance(error, ServeError):
            passage.reason = error.reason
            return error_answer(error.status, str(error), error_headers(error))
        passage.reason = "internal"
        fields = {"request_id": passage.request_id, "path": scope["path"]}
        error_log.error("request failed", exc_info=error, extra=fields)
        return error_answer(500, internal_message(error, passage.request_id), [])

    def record(self, scope: Scope, passage: Passage) -> None:
        """Count an answered request, and write its line of the log."""
        service = self._service
        route = getattr(scope.get("route"), "path", passage.route or "unmatched")
        seconds = time.perf_counter() - passage.started
        service.metrics.observe_request(route, passage.status, seconds)
        if passage.reason:
            service.metrics.errors.labels(passage.reason).inc()
        if service.config.access_log and access_log.isEnabledFor(logging.INFO):
            fields = {
                "request_id": passage.request_id,
                "method": scope["method"],
                "path": scope["path"],
                "status": passage.status,
                "ms": round(seconds * 1e3, 3),
                "caller": passage.caller,
                "model": passage.model,
                "reason": passage.reason,
            }
            access_log.info("request", extra={key: value for key, value in fields.items() if value != ""})
        if passage.status in (429, 503) and passage.reason:
            service.metrics.shed.labels(passage.reason).inc()


def error_headers(error: ServeError) -> list[tuple[str, str]]:
    """What the answer to an error carries; when the rest of a body is not wanted, the connection ends."""
    return [*error.headers(), *([("connection", "close")] if error.status in (408, 413) else [])]


def internal_message(error: BaseException, request_id: str) -> str:
    """What a client may know of a fault of ours."""
    return f"internal error ({type(error).__name__}); request id {request_id}"


def error_answer(status: int, message: str, headers: list[tuple[str, str]]) -> Described:
    """`{"error": message}`."""
    body = json.dumps({"error": message}).encode()
    raw = [(name.encode(), value.encode()) for name, value in headers]
    return status, [*raw, (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))], body
