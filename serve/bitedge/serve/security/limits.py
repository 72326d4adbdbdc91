"""Limits of what requests may cost together: bytes in memory, pixels being decoded, connections, processors."""

from __future__ import annotations

import asyncio
import os
import resource
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bitedge.serve.api.errors import BodyTimeoutError, ShedError, TooLargeError

if TYPE_CHECKING:
    from starlette.requests import Request

RESERVED_FILES = 64  # descriptors that are not connections: models, logs, event loop, gRPC


class ByteBudget:
    """Bytes of request bodies that may be in memory at once; used by the event loop only."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.used = 0

    def reserve(self, count: int) -> None:
        """Count bytes, or refuse the request that brings them."""
        if self.used + count > self.total:
            raise ShedError(
                f"{self.used} of {self.total} bytes of requests are in memory, {count} more do not fit; retry later",
                reason="bytes_in_flight",
            )
        self.used += count


class PixelBudget:
    """Pixels of large images that may be decoded at once; decoder threads wait for their share."""

    def __init__(self, total: int) -> None:
        self._free = total
        self._changed = threading.Condition()

    @contextmanager
    def reserve(self, pixels: int, deadline: float) -> Iterator[None]:
        """Wait for room until the deadline (of `time.perf_counter`), then hold it."""
        with self._changed:
            fits = self._changed.wait_for(lambda: self._free >= pixels, max(0.0, deadline - time.perf_counter()))
            if not fits:
                raise ShedError("too many large images are being decoded; retry later", reason="pixels_in_flight")
            self._free -= pixels
        try:
            yield
        finally:
            with self._changed:
                self._free += pixels
                self._changed.notify_all()


async def read_body(request: Request, *, limit: int, seconds: float, budget: ByteBudget) -> bytes:
    """Read a request's body within its limits of size and time; its bytes are released when the request ends."""
    context = request.scope["bitedge"]
    declared = request.headers.get("content-length", "")
    parts: list[bytes] = []
    size = 0

    def count(expected: int) -> None:
        if expected > limit:
            raise TooLargeError(f"a request may have {limit} bytes; send a smaller image, or fewer")
        if expected > context.reserved:
            context.reserve(budget, expected - context.reserved)

    if declared.isdecimal() and declared.isascii():
        count(int(declared))
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                size += len(part)
                count(size)
                parts.append(part)
    except TimeoutError:
        raise BodyTimeoutError(f"the body did not arrive within {seconds:g} s") from None
    return b"".join(parts)


def cpu_count(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Processors that this process may use: its affinity, and the quota of its cgroup (version 2)."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
        return max(1, min(available, int(int(quota) / int(period) + 0.5)))
    except (OSError, ValueError):  # no cgroup, or "max": no quota
        return available


def connection_limit(wanted: int) -> int:
    """Raise the limit of open files as far as allowed, and keep the connections of one worker below it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = wanted + RESERVED_FILES if hard == resource.RLIM_INFINITY else min(hard, wanted + RESERVED_FILES)
    if soft != resource.RLIM_INFINITY and soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    return max(1, min(wanted, target - RESERVED_FILES))
