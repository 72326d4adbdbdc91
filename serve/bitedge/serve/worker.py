"""One worker of several, started by the supervisor: `python -m bitedge.serve.worker SOCKET CONFIG`."""

from __future__ import annotations

import socket
import sys

from bitedge.serve.server import run_worker
from bitedge.serve.settings import ServeConfig


def main(descriptor: str, config: str) -> int:
    """Serve on an inherited socket: one that listens, or the end of a channel to the supervisor."""
    return run_worker(ServeConfig.from_json(config), socket.socket(fileno=int(descriptor)))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
