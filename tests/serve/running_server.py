"""`bitedge serve` as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx2 as httpx


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class RunningServer:
    """A server on a free port of this machine, with its log."""

    def __init__(self, models: Path, *options: str, env: dict[str, str] | None = None) -> None:
        self.log_file = tempfile.TemporaryFile()  # noqa: SIM115
        patient = ("--deadline-ms", "30000")  # the machine of a test may be busy with others
        default = (
            () if "--default-model" in options or not (models / "first").is_dir() else ("--default-model", "first")
        )
        command = [sys.executable, "-m", "bitedge.cli", "serve", str(models), "--port", "0", *default, *patient]
        command += options
        environment = {**os.environ, **(env or {})}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self.log_file, env=environment, text=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if " on " not in line:
            said = self.log()
            self.close()
            raise AssertionError(f"the server did not start: {line!r} {said}")
        self.url = line.split(" on ")[-1].strip()
        self.address = self.url.partition("://")[2]
        if self.url.startswith("http://"):
            self.wait_for(lambda: self.answers("/readyz"), "ready")

    def answers(self, path: str) -> bool:
        try:
            return httpx.get(self.url + path).status_code == 200
        except httpx.HTTPError:
            return False

    def wait_for(self, condition: Any, what: str, seconds: float = 60.0) -> None:
        until = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, f"the server ended: {self.log()}"
            assert time.monotonic() < until, f"not {what} within {seconds} s: {self.log()}"
            time.sleep(0.02)

    def log(self) -> str:
        number = self.log_file.fileno()  # the server writes at the position of this very file, so nobody may move it
        return os.pread(number, os.fstat(number).st_size, 0).decode()

    def events(self, message: str) -> list[dict[str, Any]]:
        written = f'"message":"{message}"'  # most lines are of other events, and parsing them all takes long
        return [json.loads(line) for line in self.log().splitlines() if line.startswith("{") and written in line]

    def workers(self) -> list[int]:
        """The worker processes; the resource tracker of multiprocessing is none."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        lines = {int(pid): Path(f"/proc/{pid}/cmdline") for pid in children.split()}
        return [pid for pid, file in lines.items() if file.exists() and b"spawn_main" in file.read_bytes()]

    def metric(self, name: str) -> float:
        """The sum of all values whose line begins like this."""
        lines = httpx.get(f"{self.url}/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to end, and give its exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout=60)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.log_file.close()
