"""uvicorn's HTTP protocol, with one write for every answer.

uvicorn writes the head of an answer and its body apart, which costs two system calls, two packets, and two awakenings
of the client. ASGI lets a server keep the head back until the body begins, and that is what happens here. The headers
that are always the same go in at this place, as one block: uvicorn looks at every byte of every header of every answer,
which took a tenth of the time, and its own answers (to what is no HTTP) get them as well.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from bitedge.serve.headers import EXTENSION, SECURITY_BLOCK

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
        self._transport.write(data)

    def end(self) -> None:
        """The answer is complete; if it has no body (HEAD, 204, 304), its head goes now."""
        if self._head and not self.is_closing():
            self._transport.write(self._head)
        self._head, self._begun = b"", False

    def close(self) -> None:
        """Write what is left, then close."""
        self.end()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        """Whatever else a transport can do."""
        return getattr(self._transport, name)


class WholeAnswers(HttpToolsProtocol):
    """Sends each answer in one piece."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Put the holding transport in front of the real one."""
        super().connection_made(HeldTransport(transport))  # type: ignore[arg-type]

    def on_message_begin(self) -> None:
        """Tell the application which headers it need not send."""
        super().on_message_begin()
        self.scope["extensions"] = {EXTENSION: {}}

    def on_response_complete(self) -> None:
        """The next bytes begin another answer."""
        self.transport.end()  # type: ignore[attr-defined]
        super().on_response_complete()
