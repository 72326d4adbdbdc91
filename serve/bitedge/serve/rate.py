"""How fast work leaves the queue, measured while there is work."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

HORIZON = 1.0  # seconds over which the rate is smoothed


class ServiceRate:
    """Images a second, smoothed exponentially in time; idle gaps do not count."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._last = clock()
        self._per_second = 0.0
        self._known = 0.0  # weight of what was seen, so that the first seconds are not biased towards 0

    @property
    def per_second(self) -> float:
        """The measured rate, or 0 when nothing was measured yet."""
        return self._per_second / self._known if self._known else 0.0

    def begin(self, pending: int) -> None:
        """Work arrives; when there was none, the clock starts anew."""
        if pending == 0:
            self._last = self._clock()

    def completed(self, count: int) -> None:
        """Work left with an answer; what was only dropped says nothing about the rate."""
        if not count:
            return
        now = self._clock()
        elapsed = max(now - self._last, 1e-6)
        self._last = now
        keep = math.exp(-elapsed / HORIZON)
        self._per_second = self._per_second * keep + (1 - keep) * count / elapsed
        self._known = self._known * keep + (1 - keep)

    def seconds_for(self, pending: int) -> float:
        """How long it takes until `pending` images have left; 0 while the rate is not known."""
        rate = self.per_second
        return pending / rate if rate > 0 else 0.0
