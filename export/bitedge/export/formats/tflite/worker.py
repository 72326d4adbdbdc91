"""The child process with TensorFlow in it, started when it is first needed and kept until this process ends.

TensorFlow takes seconds to load. Writing a file and running it, and every further export of the same process, share one
child.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import weakref
from typing import Any

from bitedge.export.errors import ExportError


class Worker:
    """A child process that answers one request after the other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 (lives as long)
        self._child = subprocess.Popen(
            [sys.executable, "-m", "bitedge.export.formats.tflite.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self.stop = weakref.finalize(self, _stop, self._child, self._log)

    def alive(self) -> bool:
        """Tell whether it can be asked."""
        return self.stop.alive and self._child.poll() is None

    def ask(self, what: str, **request: str) -> None:
        """Have a request carried out; `what` begins the message if that fails, and the log is shown then."""
        with self._lock:
            start = self._log.seek(0, 2)
            answer = self._answer(request)
            if "refused" in answer:
                raise ExportError(answer["refused"])
            if "failed" in answer:
                self._log.seek(start)
                log = self._log.read()
                sys.stderr.write(log)
                last = ([line.strip() for line in log.splitlines() if line.strip()] or ["no message"])[-1]
                raise ExportError(f"{what}: {answer['failed'] or last}")

    def _answer(self, request: dict[str, str]) -> dict[str, Any]:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            self._child.stdin.write(json.dumps(request) + "\n")
            self._child.stdin.flush()
            line = self._child.stdout.readline()
        except BrokenPipeError:
            line = ""
        if line:
            found: dict[str, Any] = json.loads(line)
            return found
        self._child.wait()
        return {"failed": ""}


def _stop(child: subprocess.Popen[str], log: Any) -> None:
    child.communicate()  # closes its input, which ends it
    log.close()


_shared: Worker | None = None
_starting = threading.Lock()


def worker() -> Worker:
    """Give this process's worker; a new one if the last has ended."""
    global _shared
    with _starting:
        if _shared is None or not _shared.alive():
            if _shared is not None:
                _shared.stop()
            _shared = Worker()
        return _shared
