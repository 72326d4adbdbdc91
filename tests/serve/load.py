"""A steady load from several threads, each request counted with its outcome."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2


@dataclass
class Load:
    """What the clients saw."""

    statuses: Counter[int] = field(default_factory=Counter)
    answers: list[dict[str, Any]] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)

    @property
    def total(self) -> int:
        return sum(self.statuses.values())


@contextmanager
def under_load(url: str, body: bytes, *, clients: int = 4, keep_alive: bool = True) -> Iterator[Load]:
    """Send one request after the other until the block ends; nothing is ever sent again."""
    load = Load()
    headers = {} if keep_alive else {"connection": "close"}

    def work() -> None:
        with httpx2.Client(timeout=30, headers=headers) as client:
            while not load.stopping.is_set():
                answer = send(client)
                if answer is not None:
                    load.statuses[answer.status_code] += 1
                    load.answers.append(answer.json())

    def send(client: httpx2.Client) -> httpx2.Response | None:
        try:
            return client.post(url, content=body)
        except httpx2.HTTPError as error:
            if not (isinstance(error, httpx2.ConnectError) and load.stopping.is_set()):
                load.lost.append(repr(error))
            return None

    threads = [threading.Thread(target=work) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield load
    finally:
        load.stopping.set()
        for thread in threads:
            thread.join()


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    """Wait, but not forever."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"{what} did not happen within {seconds} s"
        time.sleep(0.02)


def more_answers(load: Load, count: int) -> None:
    """Wait for so many."""
    target = load.total + count
    wait_until(lambda: load.total >= target, f"{count} more answers")
