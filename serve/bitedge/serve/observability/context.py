"""What is known of a request while it runs, and the middleware that keeps it.

One plain ASGI middleware around the application: request id, security headers, HEAD, access log, metrics and traces.
"""

from __future__ import annotations

import itertools
import logging
import re
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bitedge.serve.security.headers import SECURITY_HEADERS
from bitedge.serve.security.limits import ByteBudget

if TYPE_CHECKING:
    from bitedge.serve.inference.job import Answer
    from bitedge.serve.observability.metrics import Metrics
    from bitedge.serve.observability.tracing import Tracing

access_log = logging.getLogger("bitedge.serve.access")
error_log = logging.getLogger("bitedge.serve.error")

REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(slots=True)
class RequestContext:
    """One request over HTTP or gRPC; handlers add to it for the log, the metrics and the trace."""

    request_id: str
    traceparent: str = ""
    started: float = field(default_factory=time.perf_counter)
    caller: str = ""
    method: str = ""
    path: str = ""
    route: str = "unmatched"
    status: int = 0
    reason: str = ""
    model: str = ""
    answers: list[Answer] = field(default_factory=list)
    reserved: int = 0  # bytes of the budget
    budget: ByteBudget | None = None

    def reserve(self, budget: ByteBudget, count: int) -> None:
        """Reserve bytes until the request ends."""
        budget.reserve(count)
        self.budget = budget
        self.reserved += count


class Recorder:
    """Begins and ends requests, whichever protocol they come by."""

    def __init__(self, metrics: Metrics, tracing: Tracing | None, *, access_log: bool) -> None:
        self._metrics = metrics
        self._tracing = tracing
        self._access_log = access_log
        self._run = secrets.token_hex(4)
        self._count = itertools.count(1)

    def begin(self, request_id: str | None, traceparent: str = "", **fields: str) -> RequestContext:
        """Keep the client's request id if it is well formed, and make one otherwise."""
        if not request_id or not REQUEST_ID.fullmatch(request_id):
            request_id = f"{self._run}{next(self._count):08x}"
        return RequestContext(request_id, traceparent, **fields)  # type: ignore[arg-type]

    def end(self, context: RequestContext) -> None:
        """Count an answered request, trace it, and write its line of the log."""
        if context.budget is not None:
            context.budget.used -= context.reserved
        seconds = time.perf_counter() - context.started
        self._metrics.observe_request(context.route, context.status, context.reason, seconds)
        trace_id = self._tracing.record(context, seconds) if self._tracing is not None else ""
        if self._access_log:
            names = ("request_id", "method", "path", "status", "caller", "model", "reason")
            fields = {name: getattr(context, name) for name in names}
            fields |= {"ms": round(seconds * 1e3, 3), "trace_id": trace_id}
            access_log.info("request", extra={key: value for key, value in fields.items() if value != ""})


class RequestMiddleware:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, recorder: Recorder) -> None:
        self.app = app
        self._recorder = recorder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run a request in its context."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        request_id = headers.get(b"x-request-id", b"").decode("latin-1")
        traceparent = headers.get(b"traceparent", b"").decode("latin-1")
        context = self._recorder.begin(request_id, traceparent, method=scope["method"], path=scope["path"])
        context.caller = scope["client"][0] if scope.get("client") else "local"
        scope["bitedge"] = context
        head = scope["method"] == "HEAD"
        if head:  # a GET whose body is not sent
            scope["method"] = "GET"
        own = [(b"x-request-id", context.request_id.encode()), *SECURITY_HEADERS]

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                context.status = message["status"]
                message["headers"] = [*message["headers"], *own]
            elif head and message["type"] == "http.response.body":
                message["body"] = b""
            await send(message)

        try:
            await self.app(scope, receive, send_with_headers)
        except ClientDisconnect:
            context.status, context.reason = 499, "disconnected"
        except Exception as error:  # the application has answered it, and raises it for the log
            fields = {"request_id": context.request_id, "path": context.path}
            error_log.error("request failed", exc_info=error, extra=fields)
            if context.reason != "internal":
                raise
        finally:
            context.route = getattr(scope.get("route"), "path", context.route)
            self._recorder.end(context)
