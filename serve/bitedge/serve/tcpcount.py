"""What the kernel counted on a connection: how much was read from it and written to it, by whichever process.

A process that was killed cannot say how far it came, but the kernel can, to the byte.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import sys
import termios
from dataclasses import dataclass

ESTABLISHED, CLOSE_WAIT = 1, 8  # include/net/tcp_states.h; the second: the client will send no more
COUNTS = struct.Struct("=QQ")  # tcpi_bytes_acked and tcpi_bytes_received in struct tcp_info, <linux/tcp.h>
COUNTS_AT = 120


@dataclass(frozen=True)
class TcpCount:
    """The bytes that passed between a connection and the processes that held it, since it was accepted."""

    usable: bool  # neither side has given it up
    read: int
    written: int


def tcp_count(sock: socket.socket) -> TcpCount:
    """Count on a connection that nobody is reading or writing meanwhile; the client may do what it likes."""
    before = None
    while before != (info := tcp_info(sock)):  # what is acknowledged or arrives between two calls would count twice
        before, waiting, unsent = info, queued(sock, termios.FIONREAD), queued(sock, termios.TIOCOUTQ)
    state, acknowledged, received = info
    end_of_stream = state == CLOSE_WAIT  # counts as one received byte, but never as a waiting one
    return TcpCount(state in (ESTABLISHED, CLOSE_WAIT), received - end_of_stream - waiting, acknowledged + unsent)


def tcp_info(sock: socket.socket) -> tuple[int, int, int]:
    """State, acknowledged bytes, received bytes."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, COUNTS_AT + COUNTS.size)
    acknowledged, received = COUNTS.unpack_from(info, COUNTS_AT)
    return info[0], acknowledged, received


def queued(sock: socket.socket, direction: int) -> int:
    """Bytes in one of the connection's queues."""
    (count,) = struct.unpack("i", fcntl.ioctl(sock, direction, bytes(4)))
    return int(count)


def kernel_counts() -> bool:
    """Whether this kernel counts, tried on a connection of our own: some have the call, but not these numbers."""
    if sys.platform != "linux":
        return False
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname(), timeout=5) as client,
            server.accept()[0] as sock,
        ):
            client.sendall(b"12345")
            sock.recv(3, socket.MSG_WAITALL)
            sock.sendall(b"1234567")
            client.recv(7, socket.MSG_WAITALL)
            return tcp_count(sock) == TcpCount(usable=True, read=3, written=7)
    except (OSError, struct.error):
        return False
