"""One timer for all who wait equally long.

A timer for each request costs as much as the rest of reading its body. As all have the same time, they run out in the
order in which they began, and a single timer for the oldest is enough.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any


class Patience:
    """Cancels tasks that have been at something for too long."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._until: dict[asyncio.Task[Any], float] = {}  # 0: cancelled
        self._armed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Call it on the event loop of the tasks; asking which loop runs costs a system call in Python 3.11."""
        self._loop = asyncio.get_running_loop()

    def begin(self) -> asyncio.Task[Any]:
        """Watch the current task."""
        task = asyncio.current_task(self._loop)
        assert task is not None
        self._until[task] = time.monotonic() + self.seconds
        if not self._armed:
            self._arm(self.seconds)
        return task

    def is_late(self, task: asyncio.Task[Any]) -> bool:
        """Whether it was cancelled for taking too long."""
        return self._until[task] == 0.0

    def end(self, task: asyncio.Task[Any]) -> None:
        """Watch it no longer."""
        del self._until[task]

    def _arm(self, seconds: float) -> None:
        self._armed = True
        assert self._loop is not None, "start() comes first"
        self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        self._armed = False
        now = time.monotonic()
        for task, until in list(self._until.items()):
            if until > now:
                self._arm(until - now)
                return
            if until:
                self._until[task] = 0.0
                task.cancel()
