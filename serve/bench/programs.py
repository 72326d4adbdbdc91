"""The servers under test as processes, and Debian's load generators against them."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
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

    def memory(self) -> int:
        """Resident bytes."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * 4096

    def cpu(self) -> float:
        """Seconds of processor time so far, of this process."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100


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
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()


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
    return [sys.executable, str(HERE / "noop.py"), str(port)]


def bitedge(model: Path, port: int, *options: str) -> list[str]:
    """The service."""
    command = [sys.executable, "-m", "bitedge.cli", "serve", str(model), "--port", str(port), "--no-access-log"]
    return [*command, "--poll-seconds", "0", *options]


@dataclass
class Closed:
    """What wrk saw: as many requests as fit, each connection waiting for its answer."""

    per_second: float
    accepted: float  # a second, too: those answered 200
    statuses: Counter[int] = field(default_factory=Counter)
    without_retry_after: int = 0


def wrk(url: str, body: Path, media_type: str, *, connections: int, seconds: int) -> Closed:
    """Run wrk with a script that looks at every answer."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(HERE / "post.lua"), url, "--"]
    text = subprocess.run([*command, str(body), media_type], check=True, capture_output=True, text=True).stdout
    rate = re.search(r"Requests/sec:\s+([\d.]+)", text)
    if rate is None:
        raise SystemExit(f"wrk said: {text}")
    statuses = Counter({int(code): int(count) for code, count in re.findall(r"status (\d+) (\d+)", text)})
    missing = re.search(r"without Retry-After (\d+)", text)
    total = re.search(r"(\d+) requests in ([\d.]+)s", text)
    accepted = (int(total[1]) - sum(statuses.values())) / float(total[2]) if total else 0.0
    return Closed(float(rate[1]), accepted, statuses, int(missing[1]) if missing else -1)


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
