"""The kernel's count of a connection, against our own."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from bitedge.serve.tcpcount import TcpCount, kernel_counts, tcp_count

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture(params=["127.0.0.1", "::1"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """A client and the server's side of its connection."""
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with (
        socket.create_server((request.param, 0), family=family) as server,
        socket.create_connection(server.getsockname()[:2], timeout=30) as client,
        server.accept()[0] as sock,
    ):
        yield client, sock


def receive(sock: socket.socket, count: int) -> None:
    assert len(sock.recv(count, socket.MSG_WAITALL)) == count


def test_this_kernel_counts() -> None:
    assert kernel_counts()


def test_every_byte_counts_once_whether_or_not_the_client_has_read_it(pair: Pair) -> None:
    client, sock = pair
    assert tcp_count(sock) == TcpCount(usable=True, read=0, written=0)
    client.sendall(bytes(1000))
    assert tcp_count(sock).read == 0, "what arrived is not read yet"
    receive(sock, 400)
    sock.sendall(bytes(70))
    assert tcp_count(sock) == TcpCount(usable=True, read=400, written=70)
    receive(client, 30)
    receive(sock, 600)
    assert tcp_count(sock) == TcpCount(usable=True, read=1000, written=70)


def test_bytes_that_the_client_does_not_take_count_too(pair: Pair) -> None:
    client, sock = pair
    sock.setblocking(False)
    written = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            written += sock.send(bytes(100_000))
    assert tcp_count(sock).written == written > 100_000
    for _ in range(20):
        client.recv(65_536)
        assert tcp_count(sock).written == written, "while acknowledgements come in"


def test_the_end_of_the_stream_is_no_byte(pair: Pair) -> None:
    client, sock = pair
    client.sendall(b"12345")
    client.shutdown(socket.SHUT_WR)
    receive(sock, 2)
    assert tcp_count(sock) == TcpCount(usable=True, read=2, written=0)
    receive(sock, 3)
    assert sock.recv(1) == b""
    assert tcp_count(sock) == TcpCount(usable=True, read=5, written=0)


def test_a_connection_that_was_shut_down_is_of_no_use(pair: Pair) -> None:
    _, sock = pair
    sock.shutdown(socket.SHUT_WR)
    assert not tcp_count(sock).usable
