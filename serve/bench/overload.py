"""Four times as many requests as the service can do: what it accepts, what it refuses, and what that costs."""

from __future__ import annotations

import re
import statistics
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.programs import Program, bitedge, free_port, h2load, running, wrk

DEADLINE_MS = 1000
TIMES = 4.0
MARGIN = 1.1  # asked of the generator beyond four times, because its timers are late now and then


@dataclass(frozen=True)
class Overload:
    """What came of it; rates in requests a second, times in milliseconds, memory in MiB."""

    capacity: float
    offered: float
    accepted: float
    shed: float
    strange: int
    uncounted: int
    p50: float
    p99: float
    shed_p99: float
    memory: tuple[float, float]
    refusals: int
    without_retry_after: int
    after: float

    @property
    def times(self) -> float:
        """How many times its capacity the service was offered."""
        return self.offered / self.capacity

    def promises(self) -> dict[str, bool]:
        """What must hold."""
        return {
            f"offered {TIMES:g} times the capacity": self.times >= TIMES,
            "every request is answered with 200 or 503, none is lost": self.strange == self.uncounted == 0,
            "every refusal says when to come back": self.refusals > 0 and self.without_retry_after == 0,
            f"p99 of accepted requests is below the deadline of {DEADLINE_MS} ms": self.p99 < DEADLINE_MS,
            "memory is flat": self.memory[1] < 1.1 * self.memory[0] + 8,
        }

    def rows(self) -> dict[str, str]:
        """The lines of the table."""
        return {
            "wide network: capacity": f"{self.capacity:.0f} requests/s",
            "overload: answered": f"{self.offered:.0f} requests/s, {self.times:.1f} x capacity",
            "overload: 200": f"{self.accepted:.0f} requests/s, p50 {self.p50:.0f} ms, p99 {self.p99:.0f} ms",
            "overload: 503": f"{self.shed:.0f} requests/s, p99 {self.shed_p99:.0f} ms",
            "overload: anything else, or lost": f"{self.strange + self.uncounted}",
            "refusals looked at, without `Retry-After`": f"{self.refusals}, {self.without_retry_after}",
            "overload: memory, first and last third": f"{self.memory[0]:.0f} MiB, {self.memory[1]:.0f} MiB",
            "after the overload": f"{self.after:.0f} requests/s",
        }


def overload(model: Path, picture: Path, seconds: int, work: Path) -> Overload:
    """Measure the capacity, then send four times as much for a while, at a rate that no answer slows down."""
    port = free_port()
    command = bitedge(model, port, "--deadline-ms", str(DEADLINE_MS))
    with running(command, port, "/v1/classify", work / "overload.log") as service:
        wrk(service.url, picture, "image/png", connections=16, seconds=2)
        capacity = wrk(service.url, picture, "image/png", connections=32, seconds=5).accepted
        before = counted(service)
        # A client waits for its answer before it asks again, and all clients begin together. With twice as many as
        # the service can answer in a second each asks twice a second, and has its answer before it asks again.
        rate, clients = MARGIN * TIMES * capacity, max(16, round(2 * capacity))
        with memory_of(service) as memory:
            seen = h2load(
                service.url, picture, rate=rate, clients=clients, seconds=seconds, log=work / "overload.requests"
            )
        time.sleep(2)  # the last accepted requests end
        counts = {status: count - before.get(status, 0) for status, count in counted(service).items()}
        checked = wrk(service.url, picture, "image/png", connections=512, seconds=4)
        time.sleep(2)
        after = wrk(service.url, picture, "image/png", connections=32, seconds=4).accepted
    answered = {status: len(values) for status, values in seen.latencies.items()}
    third = max(1, len(memory) // 3)
    return Overload(
        capacity=capacity,
        offered=sum(answered.values()) / seconds,
        accepted=answered.get(200, 0) / seconds,
        shed=answered.get(503, 0) / seconds,
        strange=seen.lost + sum(count for status, count in answered.items() if status not in (200, 503)),
        # the service may have answered requests that were on their way when the generator stopped; never fewer
        uncounted=sum(max(0, count - counts.get(status, 0)) for status, count in answered.items()),
        p50=seen.quantile(200, 0.50),
        p99=seen.quantile(200, 0.99),
        shed_p99=seen.quantile(503, 0.99),
        memory=(statistics.median(memory[:third]), statistics.median(memory[-third:])),
        refusals=sum(checked.statuses.values()),
        without_retry_after=max(0, checked.without_retry_after),
        after=after,
    )


def counted(service: Program) -> dict[int, int]:
    """How many answers of each status the service itself has counted."""
    with urllib.request.urlopen(service.url.replace("/v1/classify", "/metrics"), timeout=30) as answer:
        text = answer.read().decode()
    rows = re.findall(r'bitedge_requests_total\{route="/v1/classify",status="(\d+)"\} ([\d.e+]+)', text)
    return {int(status): int(float(count)) for status, count in rows}


@contextmanager
def memory_of(service: Program) -> Iterator[list[float]]:
    """Note the resident memory twice a second, in MiB."""
    noted = [service.memory() / 2**20]
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.5):
            noted.append(service.memory() / 2**20)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield noted
    finally:
        stop.set()
        watcher.join()
