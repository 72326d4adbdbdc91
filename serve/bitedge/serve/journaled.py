"""The HTTP protocol of a worker whose connections outlive it: every connection keeps a journal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from bitedge.serve.journal import SMALL, Journal
from bitedge.serve.protocol import HeldTransport, WholeAnswers

RELEASE_SECONDS = 0.1


class JournaledTransport(HeldTransport):
    """Marks the end of an answer before its last bytes are written; so it keeps the latest piece until it knows."""

    def __init__(self, transport: asyncio.Transport, journal: Journal) -> None:
        super().__init__(transport)
        self._journal = journal
        self._has_body = False

    def write(self, data: bytes) -> None:
        """Write the piece before this one."""
        if not self._begun:
            super().write(data)
        elif not self._has_body:
            self._head, self._has_body = self._head + data, True
        elif data:
            self._send(self._head)
            self._head = data

    def end(self) -> None:
        """The answer is complete."""
        super().end()
        self._has_body = False

    def close(self) -> None:
        """Write what is left, then close."""
        if not self._journal.closed:
            self._journal.end()
        super().close()

    def _send(self, data: bytes, ends: int | None = None) -> None:
        if self.is_closing():
            return
        self._journal.sent += len(data)
        if ends is not None:
            self._journal.mark(ends)
        self._transport.write(data)


class JournaledAnswers(WholeAnswers):
    """Begins with what another worker has left."""

    journal: Journal
    _skip = 0  # requests that were answered before
    _inside = False

    @property
    def idle(self) -> bool:
        """Whether every request that began has come to its end and been answered."""
        return not self._inside and (self.cycle is None or self.cycle.response_complete)

    def hold(self, transport: asyncio.Transport) -> HeldTransport:
        """Write through the journal."""
        return JournaledTransport(transport, self.journal)

    def resume(self) -> None:
        """Read the journal as if its bytes had just come."""
        self._skip = self.journal.answered
        if self.journal.used:
            self.data_received(self.journal.content)
        if self.idle and not self.transport.is_closing():
            seconds, handler = self.timeout_keep_alive, self.timeout_keep_alive_handler
            self.timeout_keep_alive_task = self.loop.call_later(seconds, handler)

    def on_message_begin(self) -> None:
        """A request begins."""
        self._inside = True
        self.journal.begin()
        super().on_message_begin()

    def on_message_complete(self) -> None:
        """All of its bytes are here."""
        self._inside = False
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if self._skip:
            self._skip -= 1
            cycle.response_complete = True
        else:
            super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """A large journal is not kept until the next request."""
        super().on_response_complete()
        if self.journal.used > SMALL:
            self.loop.call_later(RELEASE_SECONDS, self.release)

    def release(self) -> None:
        """Empty the journal, if nothing in it is needed any more."""
        if self.journal.closed or not self.idle:
            return
        if self.transport.get_write_buffer_size():
            self.loop.call_later(RELEASE_SECONDS, self.release)
        else:
            self.journal.restart()


class JournaledConnection(asyncio.BufferedProtocol):
    """Has the kernel put what it receives into the journal, and hands it to the HTTP protocol."""

    def __init__(self, http: JournaledAnswers, journal: Journal, inherited: bool, on_lost: Callable[[], None]) -> None:
        self.http = http
        self._journal = http.journal = journal
        self._inherited = inherited
        self._on_lost = on_lost
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin; what was inherited is read when the transport is ready to be paused."""
        self._transport = transport
        self.http.connection_made(transport)
        if self._inherited:
            self.http.loop.call_soon(self._resume)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Where to receive."""
        journal = self._journal
        if journal.used and self.http.idle and not self._inherited and not self._transport.get_write_buffer_size():
            journal.restart()
        return journal.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Read what was received."""
        if self._inherited:
            self._resume()
        self.http.data_received(self._journal.take(nbytes))

    def eof_received(self) -> None:
        """The client sends no more."""
        self.http.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go."""
        self.http.connection_lost(exc)
        self._journal.close()
        self._on_lost()

    def pause_writing(self) -> None:
        """The client does not read."""
        self.http.pause_writing()

    def resume_writing(self) -> None:
        """It reads again."""
        self.http.resume_writing()

    def _resume(self) -> None:
        if self._inherited and not self._journal.closed:
            self._inherited = False
            self.http.resume()
