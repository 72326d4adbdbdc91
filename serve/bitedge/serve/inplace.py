"""Work that is smaller than the way to a thread, done where it is: on the event loop.

The way to a thread and back is two awakenings and several changes of Python's lock. A lone request pays more for it
than for a PNG of 32x32 and a network of a tenth of a millisecond, and when there are many, the loop and the threads
wait for the same lock. So a job is run in place when the network's measured time is below `quick` and the image is
slight by its structure (`slight.py`), which bounds the time by construction.

Jobs are gathered until a turn of the loop brings no more, and run together: code and data of one kind of work then stay
in the caches, and the same requests cost little more than half of what they cost one by one. The loop stays free for
others: jobs are gathered only as long as they are expected to take less than `GATHER_SECONDS`. What else comes until
they have run goes to the queue, which sheds when it is full.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import numpy as np

from bitedge.serve.inference.job import (
    Answer,
    BatchReport,
    Contexts,
    Job,
    Outcome,
    answer_futures,
    group_by_model,
    run_group,
    too_late,
)
from bitedge.serve.inference.preprocessing import ImageLimits
from bitedge.serve.slight import read_slight

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
        self._jobs: list[Job] = []
        self._seen = 0  # jobs, at the end of the turn before
        self._expected = 0.0  # seconds of work
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Call it on the event loop that will submit; asking which loop runs costs a system call in Python 3.11."""
        self._loop = asyncio.get_running_loop()

    def suits(self, job: Job) -> bool:
        """Whether a job may run here; False: it belongs to the threads."""
        if job.model.pace * job.count >= self._quick or self._expected > GATHER_SECONDS:
            return False
        if isinstance(job.payload, np.ndarray):
            return True
        job.slight = read_slight(job.payload, job.model.geometry, self._limits)
        return job.slight is not None

    def add(self, job: Job) -> None:
        """Run a job that suits, soon, and tell whoever waits for it."""
        if not self._jobs:
            assert self._loop is not None, "start() comes first"
            self._loop.call_soon(self._end_turn)
        self._jobs.append(job)
        self._expected += job.model.pace * job.count + (DECODE_SECONDS if job.slight is not None else 0.0)

    def submit(self, job: Job) -> asyncio.Future[Answer] | None:
        """Run a job if it suits, and give the future of its answer."""
        if not self.suits(job):
            return None
        assert self._loop is not None, "start() comes first"
        job.future = future = self._loop.create_future()
        self.add(job)
        return future

    def _end_turn(self) -> None:
        if len(self._jobs) > self._seen:
            assert self._loop is not None
            self._seen = len(self._jobs)
            self._loop.call_soon(self._end_turn)
            return
        jobs, self._jobs, self._seen, self._expected = self._jobs, [], 0, 0.0
        self._run(jobs)

    def _run(self, jobs: Sequence[Job]) -> None:
        ready: list[Job] = []
        outcomes: list[Outcome] = []
        for job in jobs:
            try:
                self._prepare(job)
                ready.append(job)
            except Exception as error:  # whatever it is, the others must have their answers
                outcomes.append((job, error))
        for group in group_by_model(ready, self._max_batch):
            answers, report = run_group(group, self._contexts)
            self._on_batch(report)
            outcomes += answers
        answer_futures(outcomes)

    def _prepare(self, job: Job) -> None:
        begun = time.perf_counter()
        if begun + job.model.pace * job.count > job.deadline:
            raise too_late(job)
        if job.slight is None:
            assert isinstance(job.payload, np.ndarray)
            job.tensor = job.payload
            return
        job.tensor = job.slight.pixels(job.model.geometry, self._limits)[None]
        job.decode = time.perf_counter() - begun
