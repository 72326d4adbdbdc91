"""A steady load from several threads, each request counted with its outcome."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
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
    retried: list[str] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)

    @property
    def total(self) -> int:
        return sum(self.statuses.values())


@contextmanager
def under_load(url: str, body: bytes, *, clients: int = 4, retries: int = 0) -> Iterator[Load]:
    """Send one request after the other until the block ends; a connection that breaks is retried, or counts as lost."""
    load = Load()

    def work() -> None:
        with httpx2.Client(timeout=30) as client:
            while not load.stopping.is_set():
                answer = send(client)
                if answer is not None:
                    load.statuses[answer.status_code] += 1
                    load.answers.append(answer.json())

    def send(client: httpx2.Client) -> httpx2.Response | None:
        for attempt in range(retries + 1):
            try:
                return client.post(url, content=body)
            except httpx2.ConnectError as error:
                if load.stopping.is_set():
                    return None
                failure: Exception = error
            except httpx2.HTTPError as error:
                failure = error
            (load.lost if attempt == retries else load.retried).append(repr(failure))
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
