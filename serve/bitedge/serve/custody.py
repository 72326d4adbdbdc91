"""Connections in the supervisor's hands, so that none ends with the worker that serves it.

The supervisor accepts, keeps a duplicate of every connection, and sends the connection to the worker that has the
fewest. When a worker has died, its connections go to others, each with its journal, and they go on from there.

Perhaps one of the requests has killed it. So those that saw two workers die are suspects, which are tried again one
after the other: the next death shows which one is guilty, and that one is refused.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import resource
import selectors
import socket
import termios
import time
from dataclasses import dataclass, field

from bitedge.serve.adopter import HANDED, LOST, NO_MORE, NUMBER, READY
from bitedge.serve.journal import Standing, create_journal, standing
from bitedge.serve.security.headers import SECURITY_BLOCK
from bitedge.serve.tcpcount import queued, tcp_count

log = logging.getLogger("bitedge.serve.supervisor")

AT_ONCE = 64
HURRY_SECONDS = 0.01  # until the next look, when there is something that cannot be waited for
SPARE_DESCRIPTORS = 200  # for all that is no connection
MESSAGE_BYTES = 64 << 10
MOST_IN_CHANNEL = 32 << 10  # bytes of the kernel's memory: about 40 connections

SUSPECT = 2  # deaths of workers that a request was in the hands of
GUILTY = 3

REFUSAL = json.dumps({"error": f"{GUILTY} workers died at this request; send another one"}).encode()
REFUSED = b"".join([
    b"HTTP/1.1 503 Service Unavailable\r\n", SECURITY_BLOCK, b"retry-after: 1\r\nconnection: close\r\n",
    b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(REFUSAL), REFUSAL,
])  # fmt: skip


@dataclass
class Connection:
    """A client's connection, which may have had several workers."""

    number: int
    sock: socket.socket
    journal: int
    received: int = 0  # where the next worker has to go on
    mark: int = 0
    request: tuple[int, int] = (0, 0)  # the one that is to be answered next
    deaths: int = 0  # of workers that had it


@dataclass(eq=False)
class Worker:
    """A worker as seen from here."""

    channel: socket.socket
    takes: bool = False  # more connections
    gone: bool = False  # its end of the channel is closed
    connections: dict[int, Connection] = field(default_factory=dict)


class Custody:
    """All connections, and the workers that have them."""

    def __init__(self, listener: socket.socket, max_body_bytes: int) -> None:
        self._listener = listener
        self._max_body_bytes = max_body_bytes
        self._most = (raise_limit() - SPARE_DESCRIPTORS) // 2
        self._numbers = itertools.count()
        self._count = 0
        self._spare: list[int] = []  # an unused journal
        self._workers: dict[int, Worker] = {}
        self._orphans: list[Connection] = []  # whose worker has died, or who have none yet
        self._suspects: list[Connection] = []
        self._on_trial: Connection | None = None
        self._selector = selectors.DefaultSelector()
        self._listening = False

    def channel(self) -> tuple[socket.socket, socket.socket]:
        """Our end and a worker's."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        theirs.setblocking(False)
        return ours, theirs

    def enlist(self, pid: int, channel: socket.socket) -> None:
        """A worker has been started."""
        worker = self._workers[pid] = Worker(channel)
        self._selector.register(channel, selectors.EVENT_READ, worker)

    def turn(self, seconds: float) -> None:
        """Wait for something to happen, and do what it asks for."""
        takers = any(worker.takes for worker in self._workers.values())
        self._listen(takers and not self._orphans and self._count < self._most)
        waiting = self._orphans or self._suspects
        hurry = (takers and waiting) or any(worker.gone for worker in self._workers.values())
        for key, _ in self._selector.select(HURRY_SECONDS if hurry else seconds):
            if key.data is None:
                self._accept()
            else:
                self._hear(key.data)
        self._try_suspects()
        self._pass_on()

    def bury(self, pid: int) -> None:
        """A worker is dead, and does nothing more: find out where it left its connections."""
        worker = self._workers[pid]
        self._hear(worker)
        self._leave(worker)
        del self._workers[pid]
        worker.channel.close()
        for connection in worker.connections.values():
            self._take_back(connection)
        if worker.connections:
            log.info("connections taken back", extra={"worker": pid, "connections": len(worker.connections)})

    def _listen(self, wanted: bool) -> None:
        """Without a worker that takes connections, clients wait where they can still go elsewhere: in the backlog."""
        if wanted and not self._listening:
            self._selector.register(self._listener, selectors.EVENT_READ)
        elif self._listening and not wanted:
            self._selector.unregister(self._listener)
        self._listening = wanted

    def _accept(self) -> None:
        for _ in range(min(AT_ONCE, self._most - self._count)):
            try:
                if not self._spare:  # first: no accepted connection may fail for want of a journal
                    self._spare = [create_journal(self._max_body_bytes)]
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:  # out of descriptors or memory, or the client is gone again
                time.sleep(HURRY_SECONDS)
                return
            sock.setblocking(False)
            self._count += 1
            self._orphans.append(Connection(next(self._numbers), sock, self._spare.pop()))
            self._pass_on()
            if self._orphans:
                return

    def _pass_on(self) -> None:
        """Give every connection that has no worker to the one that has the fewest."""
        waiting, self._orphans = self._orphans, []
        for connection in waiting:
            takers = [worker for worker in self._workers.values() if worker.takes and keeps_up(worker)]
            worker = min(takers, key=lambda worker: len(worker.connections), default=None)
            if worker is None or not self._send(worker, connection):
                self._orphans.append(connection)

    def _try_suspects(self) -> None:
        """Pass on the next suspect when the last one has been answered, or has gone."""
        if not self._suspects:
            return
        trial = self._on_trial
        left = where(trial) if trial is not None and trial.sock.fileno() >= 0 else None
        if trial is None or left is None or left.request != trial.request:
            self._on_trial = self._suspects.pop(0)
            self._orphans.append(self._on_trial)

    def _send(self, worker: Worker, connection: Connection) -> bool:
        message = HANDED.pack(connection.number, connection.received, connection.mark)
        try:
            socket.send_fds(worker.channel, [message], [connection.sock.fileno(), connection.journal])
        except OSError:  # the channel is full, or the worker dead; this is tried again
            return False
        worker.connections[connection.number] = connection
        return True

    def _hear(self, worker: Worker) -> None:
        """Hear what a worker says."""
        while not worker.gone:
            try:
                message = worker.channel.recv(MESSAGE_BYTES)
            except BlockingIOError:
                return
            except OSError:
                message = b""
            kind = message[:1]
            if kind == READY:
                worker.takes = True
            elif kind == NO_MORE:
                worker.takes = False
                worker.channel.shutdown(socket.SHUT_WR)  # so that it knows which connection was the last
            elif kind == LOST:
                for (number,) in NUMBER.iter_unpack(message[1:]):
                    self._drop(worker.connections.pop(number))
            else:
                self._leave(worker)

    def _leave(self, worker: Worker) -> None:
        if not worker.gone:
            worker.takes, worker.gone = False, True
            self._selector.unregister(worker.channel)

    def _take_back(self, connection: Connection) -> None:
        if connection is self._on_trial:
            self._on_trial = None
        left = where(connection)
        if left is None:
            self._drop(connection)
            return
        if left.request != connection.request:
            connection.request, connection.deaths = left.request, 0
        connection.deaths += left.busy
        connection.received, connection.mark = tcp_count(connection.sock).read, left.mark
        if connection.deaths < SUSPECT:
            self._orphans.append(connection)
        elif connection.deaths < GUILTY:
            self._suspects.append(connection)
        else:
            log.error("request refused: workers died at it", extra={"deaths": connection.deaths})
            with contextlib.suppress(OSError):
                connection.sock.send(REFUSED)
            self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        self._count -= 1
        connection.sock.close()
        os.close(connection.journal)


def keeps_up(worker: Worker) -> bool:
    """Whether a worker takes what it is sent. One that hangs has few connections, but must not get them all."""
    return queued(worker.channel, termios.TIOCOUTQ) < MOST_IN_CHANNEL


def where(connection: Connection) -> Standing | None:
    """Where a connection stands; None when it cannot go on."""
    count = tcp_count(connection.sock)
    return standing(connection.journal, count.written) if count.usable else None


def raise_limit() -> int:
    """Allow this process and its workers as many descriptors as they can get; how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else 1 << 20
