"""One token bucket for each caller, shared by all worker processes."""

from __future__ import annotations

import hashlib
import mmap
import struct
import time
from collections.abc import Callable
from pathlib import Path

from bitedge.serve.api.errors import RateLimitedError

SLOTS = 1 << 14  # callers that are remembered
PROBES = 8  # slots that one caller may use; the least recently used one of them makes room
SLOT = struct.Struct("=Qdd")  # hash of the caller, tokens, time of CLOCK_MONOTONIC


class RateLimiter:
    """Requests a second for each caller.

    The buckets lie in a file that the workers map, because a limit in each worker would give a caller anything between
    one share and all of them. Two workers that update one bucket at the same instant may count one request for two.
    """

    def __init__(self, rate: float, burst: float, file: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        with file.open("a+b") as opened:
            opened.truncate(SLOTS * SLOT.size)
            self._table = mmap.mmap(opened.fileno(), SLOTS * SLOT.size)

    def acquire(self, caller: str) -> None:
        """Count one request, or refuse it and say when the next one fits."""
        now = self._clock()
        key = int.from_bytes(hashlib.blake2b(caller.encode(), digest_size=8).digest(), "little") or 1
        offset, tokens, updated = self._find(key, now)
        tokens = min(self._burst, tokens + max(0.0, now - updated) * self._rate)
        allowed = tokens >= 1
        SLOT.pack_into(self._table, offset, key, tokens - 1 if allowed else tokens, now)
        if not allowed:
            message = f"more than {self._rate:g} requests a second; retry later"
            raise RateLimitedError(message, reason="rate_limit", retry_after=(1 - tokens) / self._rate)

    def _find(self, key: int, now: float) -> tuple[int, float, float]:
        """Return the caller's slot, its tokens and when it was updated; a new caller has the whole burst."""
        oldest, victim = float("inf"), 0
        for probe in range(PROBES):
            offset = (key + probe) % SLOTS * SLOT.size
            owner, tokens, updated = SLOT.unpack_from(self._table, offset)
            if owner == key:
                return offset, tokens, updated
            if updated < oldest:
                oldest, victim = updated, offset
        return victim, self._burst, now
