"""uvicorn's HTTP protocol, with one write for every answer.

uvicorn writes the head of an answer and its body apart, which costs two system calls, two packets, and two awakenings
of the client. ASGI lets a server keep the head back until the body begins, and that is what happens here. The headers
that are always the same go in at this place, as one block: uvicorn looks at every byte of every header of every answer,
which took a tenth of the time, and its own answers (to what is no HTTP) get them as well.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from bitedge.serve.security.headers import EXTENSION, SECURITY_BLOCK

AT_ONCE = "/v1/classify"  # whose requests the application may take at once

INTERIM = b"HTTP/1.1 100"  # an answer of its own: the client waits for it before it sends a body


class HeldTransport:
    """A transport that keeps the head of an answer until the first bytes of its body come, or the answer ends."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""
        self._begun = False
        self.is_closing = transport.is_closing
        self.get_extra_info = transport.get_extra_info
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading

    def write(self, data: bytes) -> None:
        """Write, unless this begins an answer."""
        if self._begun:
            if self._head:
                data, self._head = self._head + data, b""
        elif not data.startswith(INTERIM):
            after = data.index(b"\r\n") + 2  # the status line
            self._head, self._begun = data[:after] + SECURITY_BLOCK + data[after:], True
            return
        self._send(data, None if self._begun else 0)

    def write_whole(self, data: bytes) -> None:
        """Write a whole answer, unless the connection is closing."""
        if not self.is_closing():
            self._send(data, 1)

    def end(self) -> None:
        """The answer is complete; if it has no body (HEAD, 204, 304), its head goes now."""
        if self._head and not self.is_closing():
            self._send(self._head, 1)
        self._head, self._begun = b"", False

    def close(self) -> None:
        """Write what is left, then close."""
        self.end()
        self._transport.close()

    def _send(self, data: bytes, ends: int | None = None) -> None:  # noqa: ARG002
        """Write now; `ends` is 1 at the end of an answer, 0 at the end of what goes before one."""
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        """Whatever else a transport can do."""
        return getattr(self._transport, name)


class OneCycle:
    """One request and its answer, past ASGI's messages; for answers that are known as a whole."""

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    @property
    def gone(self) -> bool:
        """Whether the client has left."""
        return self._cycle.disconnected

    def answer(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        """Do for a whole answer what uvicorn does for a head and then for a body."""
        cycle = self._cycle
        lines = [b"%s: %s\r\n" % header for header in (*cycle.default_headers, *headers)]
        if not cycle.keep_alive:  # the service began to drain meanwhile
            lines.append(b"connection: close\r\n")
        cycle.response_started = cycle.response_complete = True
        transport: Any = cycle.transport
        transport.write_whole(b"".join([STATUS_LINE[status], SECURITY_BLOCK, *lines, b"\r\n", body]))
        cycle.message_event.set()
        if not cycle.keep_alive:
            transport.close()
        cycle.on_response()


class WholeAnswers(HttpToolsProtocol):
    """Sends each answer in one piece, and asks the application to answer small requests at once.

    Such a request is complete when its first bytes were read. So its task, which uvicorn would start after the headers,
    waits until then, and is not needed if the application takes the request without one.
    """

    _reading = False
    _waiting: tuple[RequestResponseCycle, Any] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Put the holding transport in front of the real one."""
        super().connection_made(self.hold(transport))  # type: ignore[arg-type]

    def hold(self, transport: asyncio.Transport) -> HeldTransport:
        """The transport that writes the answers."""
        return HeldTransport(transport)

    def data_received(self, data: bytes) -> None:
        """Parse, then answer at once, or start the task."""
        self._reading = True
        try:
            super().data_received(data)
        finally:
            self._reading = False
            if self._waiting is not None:
                (cycle, app), self._waiting = self._waiting, None
                if cycle.more_body or not app.take(cycle.scope, bytes(cycle.body), OneCycle(cycle)):
                    super()._start_asgi_task(cycle, app)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        at_once = self._reading and cycle.scope["path"] == AT_ONCE and cycle.keep_alive and not self.flow.write_paused
        if at_once and self._waiting is None:
            self._waiting = cycle, app
        else:
            super()._start_asgi_task(cycle, app)

    def on_message_begin(self) -> None:
        """Tell the application which headers it need not send."""
        super().on_message_begin()
        self.scope["extensions"] = {EXTENSION: {}}

    def on_response_complete(self) -> None:
        """The next bytes begin another answer."""
        self.transport.end()  # type: ignore[attr-defined]
        super().on_response_complete()
