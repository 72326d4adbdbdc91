"""Several workers on one socket: start them, replace those that die, stop them in order.

Each worker is a fresh interpreter (no threads or locks are inherited). A worker that gets SIGTERM finishes its
requests; those of one that is killed go to the others, for the supervisor has their connections in its custody. Where
the system does not allow that, all workers accept from the same socket, and a killed one takes along what it has.
"""

from __future__ import annotations

import logging
import logging.config
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from prometheus_client.multiprocess import mark_process_dead

from bitedge.serve.custody import Custody
from bitedge.serve.observability.logging import logging_config
from bitedge.serve.settings import ServeConfig
from bitedge.serve.tcpcount import kernel_counts

log = logging.getLogger("bitedge.serve.supervisor")

LOOK_SECONDS = 0.1
MOST_FAILURES = 5  # workers in a row that end before they serve: then the service gives up


class Supervisor:
    """The parent of the workers."""

    def __init__(self, config: ServeConfig, sock: socket.socket, folder: Path) -> None:
        self._config = replace(config, run_folder=folder)
        self._socket = sock
        self._folder = folder
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        self._custody = Custody(sock, config.max_body_bytes) if kernel_counts() else None
        self._failures = 0
        self._stopping = False

    def run(self) -> int:
        """Keep the workers alive until a signal; the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stop())
        for _ in range(self._config.workers):
            self._start()
        while self._workers:
            if self._custody is None:
                time.sleep(LOOK_SECONDS)
            else:
                self._custody.turn(LOOK_SECONDS)
            for pid, process in list(self._workers.items()):
                if process.poll() is not None:
                    self._bury(pid, process)
        return 1 if self._failures >= MOST_FAILURES else 0

    def _start(self) -> None:
        if self._custody is None:
            process = self._spawn(self._socket)
        else:
            ours, theirs = self._custody.channel()
            with theirs:
                process = self._spawn(theirs)
            self._custody.enlist(process.pid, ours)
        self._workers[process.pid] = process
        log.info("worker started", extra={"worker": process.pid})

    def _spawn(self, sock: socket.socket) -> subprocess.Popen[bytes]:
        descriptor = sock.fileno()
        command = [sys.executable, "-m", "bitedge.serve.worker", str(descriptor), self._config.to_json()]
        environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(self._folder)}
        return subprocess.Popen(command, pass_fds=(descriptor,), env=environment)

    def _bury(self, pid: int, process: subprocess.Popen[bytes]) -> None:
        """A worker ended: forget its gauges, and start another unless we are stopping."""
        del self._workers[pid]
        if self._custody is not None:
            self._custody.bury(pid)
        mark_process_dead(pid, str(self._folder))  # type: ignore[no-untyped-call]
        if self._stopping:
            return
        served = ready_mark(self._folder, pid).exists()
        ready_mark(self._folder, pid).unlink(missing_ok=True)
        self._failures = 0 if served else self._failures + 1
        log.error("worker ended", extra={"worker": pid, "code": process.returncode})
        if self._failures >= MOST_FAILURES:
            log.error("workers keep failing; giving up")
            self._stop()
            return
        self._start()

    def _stop(self) -> None:
        self._stopping = True
        for process in self._workers.values():
            if process.poll() is None:
                process.terminate()


def ready_mark(folder: Path, pid: int) -> Path:
    """The file by which a worker tells that it serves."""
    return folder / f"ready-{pid}"


def supervise(config: ServeConfig, sock: socket.socket) -> int:
    """Run the workers in a folder of their own, which is gone afterwards."""
    logging.config.dictConfig(logging_config())
    with tempfile.TemporaryDirectory(prefix="bitedge-serve-") as folder:
        (Path(folder) / "supervisor").write_text(str(os.getpid()))
        return Supervisor(config, sock, Path(folder)).run()
