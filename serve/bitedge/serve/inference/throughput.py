"""Estimate how many images a second the inference threads can do, measured while they work.

Counting what leaves the queue in a second would measure the demand whenever there is less of it than the threads could
do; a service that admits requests by such a number admits fewer and fewer.
"""

from __future__ import annotations

import math

HORIZON = 1.0  # seconds of work over which the rate is smoothed


class ThroughputEstimator:
    """Images a second that so many threads can do, smoothed exponentially over the time that they worked."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._images = 0.0
        self._seconds = 0.0

    @property
    def per_second(self) -> float:
        """The measured rate, or 0 when nothing was measured yet."""
        return self._threads * self._images / self._seconds if self._seconds else 0.0

    def add(self, images: int, seconds: float) -> None:
        """Count the images that one thread answered, and its time; dropped images say nothing about the rate."""
        if not images:
            return
        keep = math.exp(-seconds / HORIZON)
        self._images = self._images * keep + images
        self._seconds = self._seconds * keep + max(seconds, 1e-6)

    def seconds_for(self, pending: int) -> float:
        """Estimate how long it takes until `pending` images have left; 0 while the rate is not known."""
        rate = self.per_second
        return pending / rate if rate > 0 else 0.0
