"""Ask a server on this machine whether it lives: `python -m bitedge.serve.probe [PORT]`, exit code 0 or 1.

For a container's health check; an image this small has no curl.
"""

from __future__ import annotations

import http.client
import sys


def alive(port: int, path: str = "/healthz", seconds: float = 2.0) -> bool:
    """Whether the server answers 200."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(0 if alive(int(sys.argv[1]) if len(sys.argv) > 1 else 8080) else 1)
