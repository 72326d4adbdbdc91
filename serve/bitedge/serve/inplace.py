"""Work that is smaller than the way to a thread, done where it is: on the event loop.

The way to a thread and back is two awakenings and several changes of Python's lock. A lone request pays more for it
than for a PNG of 32x32 and a network of a tenth of a millisecond, and when there are many, the loop and the threads
wait for the same lock. So a job is run in place when the network's measured time is below `quick` and the image is
slight by its structure (`slight.py`), which bounds the time by construction.

Jobs are gathered until a turn of the loop brings no more, and run together: code and data of one kind of work then stay
in the caches, and the same requests cost half of what they cost one after the other. The loop stays free for others:
jobs are gathered only as long as they are expected to take less than `GATHER_SECONDS`. What else comes until they have
run goes to the queue, which sheds when it is full.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import numpy as np

from bitedge.serve.images import ImageLimits
from bitedge.serve.jobs import BatchReport, Contexts, Job, Outcome, answer_futures, group_by_model, run_group, too_late
from bitedge.serve.slight import SlightImage, read_slight

GATHER_SECONDS = 0.01
DECODE_SECONDS = 5e-5  # of a slight image, about


class InPlace:
    """Runs slight jobs on the event loop that submits them."""

    def __init__(
        self, *, quick: float, max_batch: int, limits: ImageLimits, on_batch: Callable[[BatchReport], None]
    ) -> None:
        self._quick = quick
        self._max_batch = max_batch
        self._limits = limits
        self._on_batch = on_batch
        self._contexts = Contexts()
        self._jobs: list[tuple[Job, SlightImage | None]] = []
        self._seen = 0  # jobs, at the end of the turn before
        self._expected = 0.0  # seconds of work
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Call it on the event loop that will submit; asking which loop runs costs a system call in Python 3.11."""
        self._loop = asyncio.get_running_loop()

    def submit(self, job: Job) -> bool:
        """Take a job, and answer its future soon; False: it belongs to the threads."""
        seconds = job.model.pace * job.count
        if seconds >= self._quick or self._expected > GATHER_SECONDS:
            return False
        image = None
        if not isinstance(job.payload, np.ndarray):
            image = read_slight(job.payload, job.model.geometry, self._limits)
            if image is None:
                return False
            seconds += DECODE_SECONDS
        assert self._loop is not None, "start() comes first"
        if not self._jobs:
            self._loop.call_soon(self._end_turn)
        self._jobs.append((job, image))
        self._expected += seconds
        job.future = self._loop.create_future()
        return True

    def _end_turn(self) -> None:
        if len(self._jobs) > self._seen:
            assert self._loop is not None
            self._seen = len(self._jobs)
            self._loop.call_soon(self._end_turn)
            return
        jobs, self._jobs, self._seen, self._expected = self._jobs, [], 0, 0.0
        self._run(jobs)

    def _run(self, jobs: Sequence[tuple[Job, SlightImage | None]]) -> None:
        ready: list[Job] = []
        outcomes: list[Outcome] = []
        for job, image in jobs:
            try:
                self._prepare(job, image)
                ready.append(job)
            except Exception as error:  # whatever it is, the others must have their answers
                outcomes.append((job, error))
        for group in group_by_model(ready, self._max_batch):
            answers, report = run_group(group, self._contexts)
            self._on_batch(report)
            outcomes += answers
        answer_futures(outcomes)

    def _prepare(self, job: Job, image: SlightImage | None) -> None:
        begun = time.perf_counter()
        if begun + job.model.pace * job.count > job.deadline:
            raise too_late(job)
        if image is None:
            assert isinstance(job.payload, np.ndarray)
            job.tensor = job.payload
            return
        job.tensor = image.pixels(job.model.geometry, self._limits)[None]
        job.decode = time.perf_counter() - begun
