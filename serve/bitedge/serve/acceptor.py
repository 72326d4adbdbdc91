"""Accept connections in bulk.

libuv, which uvloop stands on, accepts one connection in each turn of the event loop. When the loop is busy its turns
are long, and a crowd of new clients waits for seconds before its first byte is read: nobody can even be refused.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

AT_ONCE = 64  # in one turn; the rest of the crowd goes to other workers, or waits for the next turn


class Acceptor:
    """Stands in for the `asyncio.Server` that uvicorn would make; a client that says nothing is let go."""

    def __init__(self, sock: socket.socket, protocol: Callable[[], asyncio.Protocol], patience: float) -> None:
        self._socket = sock
        self._protocol = protocol
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop.add_reader(sock.fileno(), self._accept)

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        """The listening sockets."""
        return (self._socket,)

    def close(self) -> None:
        """Accept no more; what was accepted goes on."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())

    async def wait_closed(self) -> None:
        """Nothing is left to wait for but connections that are just being set up."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                connection, _ = self._socket.accept()
            except OSError:  # none left, or taken by another worker, or gone again
                return
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = self._loop.create_task(self._connect(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _connect(self, connection: socket.socket) -> None:
        try:
            transport, protocol = await self._loop.connect_accepted_socket(self._protocol, connection)
        except OSError:
            connection.close()
            return
        let_go_if_silent(transport, protocol, self._patience)


def let_go_if_silent(transport: asyncio.Transport, protocol: Any, patience: float) -> None:
    """Close the connection later, if no request has come by then."""

    def close_if_silent() -> None:
        # uvicorn's names: for a request whose headers are complete, and for the time that it allows between requests
        if protocol.cycle is None and protocol.timeout_keep_alive_task is None:
            transport.close()

    asyncio.get_running_loop().call_later(patience, close_if_silent)
