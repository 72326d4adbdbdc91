"""Take connections from the supervisor, which keeps a hand on each of them until it is over (`custody.py`)."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Callable

from bitedge.serve.acceptor import let_go_if_silent
from bitedge.serve.journal import Journal
from bitedge.serve.journaled import JournaledAnswers, JournaledConnection

HANDED = struct.Struct("QQQ")  # the connection's number, what was read from it, the mark that was reached
NUMBER = struct.Struct("Q")
READY, NO_MORE, LOST = b"r", b"n", b"l"  # what a worker tells; the last with numbers of connections
MOST_NUMBERS = 1_000
RETRY_SECONDS = 0.01


class Adopter:
    """Stands in for the `asyncio.Server` that uvicorn would make, like the acceptor."""

    def __init__(self, channel: socket.socket, protocol: Callable[[], asyncio.Protocol], patience: float) -> None:
        self._channel = channel.dup()  # uvicorn closes its own when connections are still to be reported
        self._protocol = protocol
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._lost: list[int] = []
        self._over = asyncio.Event()
        self._loop.add_reader(self._channel.fileno(), self._adopt)
        self._tell(READY)

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        """The socket that connections come from."""
        return (self._channel,)

    def close(self) -> None:
        """Ask for no more; what is on the way is still taken."""
        try:
            self._tell(NO_MORE)
        except BlockingIOError:  # the supervisor has much to hear
            self._loop.call_later(RETRY_SECONDS, self.close)

    async def wait_closed(self) -> None:
        """Wait until the supervisor has understood, and for connections that are just being set up."""
        await self._over.wait()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _adopt(self) -> None:
        while not self._over.is_set():
            try:
                message, descriptors, _, _ = socket.recv_fds(self._channel, HANDED.size, 2)
            except BlockingIOError:
                return
            except OSError:  # the supervisor is gone
                message, descriptors = b"", []
            if not message:
                self._loop.remove_reader(self._channel.fileno())
                self._over.set()
                return
            self._set_up(message, descriptors)

    def _set_up(self, message: bytes, descriptors: list[int]) -> None:
        number, received, mark = HANDED.unpack(message)
        try:
            first, second = descriptors
            journal = Journal(second, received, mark)
        except (ValueError, OSError):  # this process may have no more descriptors, or no more memory
            for descriptor in descriptors:
                os.close(descriptor)
            self._report(number)
            return
        os.close(second)
        connection = socket.socket(fileno=first)
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = self._loop.create_task(self._connect(connection, number, journal, inherited=received > 0))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, connection: socket.socket, number: int, journal: Journal, *, inherited: bool) -> None:
        def lost() -> None:
            finish(connection)
            self._report(number)

        def made() -> JournaledConnection:
            http = self._protocol()
            assert isinstance(http, JournaledAnswers)
            return JournaledConnection(http, journal, inherited, lost)

        try:
            transport, protocol = await self._loop.connect_accepted_socket(made, connection)
        except OSError:
            journal.close()
            connection.close()
            self._report(number)
            return
        let_go_if_silent(transport, protocol.http, self._patience)

    def _report(self, number: int) -> None:
        """Say that a connection is over; those of one turn of the loop go together."""
        if not self._lost:
            self._loop.call_soon(self._report_all)
        self._lost.append(number)

    def _report_all(self) -> None:
        part = self._lost[:MOST_NUMBERS]
        try:
            self._tell(LOST + b"".join(map(NUMBER.pack, part)))
        except BlockingIOError:
            part = []
        del self._lost[: len(part)]
        if self._lost:
            self._loop.call_later(RETRY_SECONDS, self._report_all)

    def _tell(self, message: bytes) -> None:
        try:
            self._channel.send(message)
        except (BrokenPipeError, ConnectionResetError):
            self._over.set()  # the supervisor is gone


def finish(connection: socket.socket) -> None:
    """Tell the client that the connection is over; to close it would not, while the supervisor has it, too."""
    try:
        connection.shutdown(socket.SHUT_WR)
    except OSError:  # the client knows
        return
