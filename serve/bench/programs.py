"""The servers under test as processes, and Debian's load generators against them."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent


def free_port() -> int:
    """A port that nobody has."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@dataclass
class Program:
    """A running server."""

    process: subprocess.Popen[bytes]
    url: str

    def _processes(self) -> list[tuple[Path, list[str]]]:
        """The server and its workers: all processes of its session, with the fields of their state."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == self.process.pid:
                found.append((folder, fields))
        return found

    def memory(self) -> int:
        """Resident bytes."""
        return sum(int(fields[21]) * 4096 for _, fields in self._processes())

    def cpu(self) -> float:
        """Seconds of processor time so far."""
        return sum(int(fields[11]) + int(fields[12]) for _, fields in self._processes()) / 100

    def signal(self, number: signal.Signals) -> None:
        """Stop all its processes while another server is measured (some poll while they are idle), or continue them."""
        for folder, _ in self._processes():
            with suppress(ProcessLookupError):
                os.kill(int(folder.name), number)

    def kill_rest(self) -> None:
        """End the workers that some servers leave behind."""
        self.signal(signal.SIGKILL)


@contextmanager
def running(command: list[str], port: int, path: str, log: Path) -> Iterator[Program]:
    """Start a server, wait until it answers, and end it."""
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)
    program = Program(process, f"http://127.0.0.1:{port}{path}")
    try:
        wait_for(port, process, log)
        yield program
    finally:
        program.signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
        program.kill_rest()


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until something on the port speaks HTTP."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        if process.poll() is not None:
            raise SystemExit(f"a server ended at once: {log.read_text()[-2000:]}")
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/openapi.json", timeout=5).close()
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.2)
    raise SystemExit(f"a server did not answer within two minutes: {log}")


def noop(port: int) -> list[str]:
    """The floor."""
    return [sys.executable, "-m", "bench.noop", str(port)]


def bitedge(model: Path, port: int, *options: str) -> list[str]:
    """The service, with its access log and its polling for new versions."""
    return [sys.executable, "-m", "bitedge.cli", "serve", str(model), "--port", str(port), *options]


@dataclass
class Closed:
    """What wrk saw: as many requests as fit, each connection waiting for its answer."""

    per_second: float
    accepted: float  # a second, too: those answered 200
    statuses: Counter[int] = field(default_factory=Counter)
    without_retry_after: int = 0
    p50: float = 0.0  # milliseconds
    p99: float = 0.0


def wrk(url: str, body: Path, media_type: str, *, connections: int, seconds: int) -> Closed:
    """Run wrk with a script that looks at every answer."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", str(HERE / "post.lua"), url, "--"]
    text = subprocess.run([*command, str(body), media_type], check=True, capture_output=True, text=True).stdout
    rate = re.search(r"Requests/sec:\s+([\d.]+)", text)
    if rate is None:
        raise SystemExit(f"wrk said: {text}")
    statuses = Counter({int(code): int(count) for code, count in re.findall(r"status (\d+) (\d+)", text)})
    missing = re.search(r"without Retry-After (\d+)", text)
    total = re.search(r"(\d+) requests in ([\d.]+)s", text)
    accepted = (int(total[1]) - sum(statuses.values())) / float(total[2]) if total else 0.0
    units = {"us": 1e-3, "ms": 1.0, "s": 1e3}
    found = {int(q): float(v) * units[u] for q, v, u in re.findall(r"(50|99)%\s+([\d.]+)(us|ms|s)", text)}
    return Closed(float(rate[1]), accepted, statuses, int(missing[1]) if missing else -1, found[50], found[99])


@dataclass
class Open:
    """What h2load saw: requests at a rate of their own."""

    sent: int
    lost: int
    latencies: dict[int, list[float]]  # seconds, by status
    seconds: int

    def quantile(self, status: int, share: float) -> float:
        """A quantile of the time to answer, in milliseconds."""
        values = sorted(self.latencies.get(status, [0.0]))
        return 1e3 * values[min(len(values) - 1, int(share * len(values)))]


def h2load(url: str, body: Path, *, rate: float, clients: int, seconds: int, log: Path) -> Open:
    """Send `rate` requests a second for a while; the log has one line for each answer."""
    log.unlink(missing_ok=True)
    command = ["h2load", "--h1", "-t1", f"-c{clients}", f"-D{seconds}", f"--rps={rate / clients:.3f}"]
    command += ["-d", str(body), "-H", "content-type: image/png", f"--log-file={log}", url]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    counts = re.search(r"requests: \d+ total, \d+ started, (\d+) done, .*, (\d+) errored", text)
    if counts is None:
        raise SystemExit(f"h2load said: {text}")
    latencies: dict[int, list[float]] = {}
    for line in log.read_text().splitlines():
        _, status, microseconds = line.split("\t")[:3]
        latencies.setdefault(int(status), []).append(int(microseconds) / 1e6)
    return Open(int(counts[1]), int(counts[2]), latencies, seconds)
