"""What the core is asked to do, how a batch of that is run, and what comes of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bitedge.serve.api.errors import ShedError
from bitedge.serve.models.backends import Runner, ServedModel
from bitedge.serve.slight import SlightImage


@dataclass(slots=True)
class Answer:
    """What the network said about one job, and how long each part took, in seconds."""

    outputs: NDArray[np.float32]
    best: list[tuple[int, float]]  # the classes that were asked for, best first, with their probability
    decode: float
    queue: float
    inference: float
    batch_size: int


class Waiting(Protocol):
    """Who waits for a job: a future, or something as simple."""

    def done(self) -> bool:
        """Whether nobody waits any more."""

    def set_result(self, result: Answer, /) -> None:
        """Tell the answer."""

    def set_exception(self, exception: BaseException, /) -> None:
        """Tell why there is none."""

    def cancel(self) -> object:
        """Wait no more."""


@dataclass(slots=True, eq=False)
class Job:
    """One image as it was sent, or a ready tensor of several."""

    model: ServedModel
    payload: bytes | NDArray[Any]
    deadline: float
    count: int = 1
    top_k: int = 0
    created: float = field(default_factory=time.perf_counter)
    future: Waiting | None = None
    slight: SlightImage | None = None
    cancelled: bool = False
    tensor: NDArray[Any] | None = None
    decode: float = 0.0
    apart: float = 0.0  # the part of it that a decoder's thread took
    started: float = 0.0


@dataclass(frozen=True, slots=True)
class BatchReport:
    """One run of the core, for the metrics."""

    model: ServedModel
    jobs: Sequence[Job]
    images: int
    inference: float
    failed: bool


Outcome = tuple[Job, Answer | BaseException]


def group_by_model(jobs: Sequence[Job], max_batch: int) -> list[list[Job]]:
    """Split jobs into runs of one model and at most `max_batch` images (one job may be larger)."""
    groups: dict[int, list[list[Job]]] = {}
    for job in jobs:
        of_model = groups.setdefault(id(job.model), [[]])
        if of_model[-1] and sum(other.count for other in of_model[-1]) + job.count > max_batch:
            of_model.append([])
        of_model[-1].append(job)
    return [group for of_model in groups.values() for group in of_model]


def rank(model: ServedModel, outputs: NDArray[np.float32], top_k: int) -> list[list[tuple[int, float]]]:
    """The best classes of every image, for the whole batch at once."""
    if not top_k:
        return []
    scores = model.scores(outputs)
    order = (-scores).argsort(axis=1, kind="stable")[:, :top_k]
    values = scores[np.arange(len(scores))[:, None], order]
    return [list(zip(*pair, strict=True)) for pair in zip(order.tolist(), values.tolist(), strict=True)]


class Contexts:
    """One thread's places to run models in; those of retired models go when a new one comes."""

    def __init__(self) -> None:
        self._runners: dict[int, tuple[ServedModel, Runner]] = {}

    def of(self, model: ServedModel) -> Runner:
        """This thread's runner of a model."""
        found = self._runners.get(id(model))
        if found is None:
            self._runners = {key: kept for key, kept in self._runners.items() if not kept[0].retired}
            found = self._runners[id(model)] = (model, model.context())
        return found[1]


def run_group(group: Sequence[Job], contexts: Contexts) -> tuple[list[Outcome], BatchReport]:
    """Run one batch and split its outputs; a failure is every job's answer."""
    model = group[0].model
    begun = time.perf_counter()
    images = sum([job.count for job in group])
    outcomes: list[Outcome] = []
    failed = False
    try:
        tensors = [job.tensor for job in group if job.tensor is not None]
        outputs = contexts.of(model)(tensors[0] if len(tensors) == 1 else np.concatenate(tensors))
        inference = time.perf_counter() - begun
        model.pace += (inference / images - model.pace) * (0.2 if model.pace else 1.0)
        best = rank(model, outputs, max([job.top_k for job in group]))
        row = 0
        for job in group:
            job.started = begun
            waited = max(0.0, begun - job.created - job.decode)
            ranking = best[row][: job.top_k] if job.top_k else []
            outcomes.append(
                (job, Answer(outputs[row : row + job.count], ranking, job.decode, waited, inference, images))
            )
            row += job.count
    except Exception as error:
        inference = time.perf_counter() - begun
        outcomes = [(job, error) for job in group]
        failed = True
    return outcomes, BatchReport(model, group, images, inference, failed)


def too_late(job: Job) -> ShedError:
    """Why a job is dropped before it runs."""
    waited = time.perf_counter() - job.created
    message = f"the deadline cannot be kept after {waited:.3f} s in the queue; come back later"
    return ShedError(message, reason="deadline")


def answer_futures(outcomes: Sequence[Outcome]) -> int:
    """Tell those who wait, on their event loop; how many images nobody waits for any more."""
    left = 0
    for job, outcome in outcomes:
        assert job.future is not None
        if job.future.done():
            left += job.count
        elif isinstance(outcome, Answer):
            job.future.set_result(outcome)
        else:
            job.future.set_exception(outcome)
    return left
