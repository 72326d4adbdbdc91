"""Clients on bare sockets, and what the system knows of their connections."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from tests.serve.running_server import RunningServer


class BareClient:
    """One connection; requests and answers are sent and received apart."""

    def __init__(self, server: RunningServer) -> None:
        host, port = server.address.split(":")
        self._server = server
        self.sock = socket.create_connection((host, int(port)), timeout=60)
        self._file = self.sock.makefile("rb")

    def send(self, data: bytes) -> None:
        """Send, and wait until a worker has it all."""
        self.sock.sendall(data)
        self._server.wait_for(lambda: self._row()[1] == 0 and self.holder() is not None, "read")

    def answer(self) -> tuple[int, dict[str, str], Any]:
        """Status, headers, body."""
        status = int(self._file.readline().split()[1])
        lines = iter(lambda: self._file.readline().decode().strip(), "")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return status, headers, json.loads(self._file.read(int(headers["content-length"])))

    def rest(self) -> bytes:
        """Whatever comes until the server closes the connection."""
        return self._file.read()

    def holder(self) -> int | None:
        """The worker that has the connection."""
        link = f"socket:[{self._row()[0]}]"
        return next((pid for pid in self._server.workers() if link in descriptors(pid)), None)

    def close(self) -> None:
        self._file.close()
        self.sock.close()

    def _row(self) -> tuple[str, int]:
        """Inode and unread bytes of the server's side."""
        ours, theirs = (f"{name[1]:04X}" for name in (self.sock.getsockname(), self.sock.getpeername()))
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[1].endswith(f":{theirs}") and fields[2].endswith(f":{ours}"):
                return fields[9], int(fields[4].partition(":")[2], 16)
        return "", -1


def descriptors(pid: int) -> list[str]:
    """What a process has open; nothing if it is gone."""
    try:
        return [str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return []


def post(body: bytes, *, length: int | None = None, path: str = "/v1/classify") -> bytes:
    """The bytes of a request; with a greater length, the first ones."""
    size = len(body) if length is None else length
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode() + body


HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
