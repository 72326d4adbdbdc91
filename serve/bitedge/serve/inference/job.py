"""A job for the inference threads, how a batch of jobs is run, and its outcome."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitedge.serve.models.backends import ServedModel


@dataclass(slots=True)
class Answer:
    """A model's outputs for one job, and when each step began and ended (`time.perf_counter`)."""

    outputs: NDArray[np.float32]
    best: list[tuple[int, float]]  # the `top_k` classes of the first image with their probabilities, best first
    decode: float  # seconds
    queue: float
    inference: float
    batch_size: int
    started: float  # when the batch began


@dataclass(slots=True, eq=False)
class Job:
    """One encoded image, or a tensor of one or more images."""

    model: ServedModel
    payload: bytes | NDArray[Any]
    deadline: float
    count: int = 1
    top_k: int = 0
    created: float = field(default_factory=time.perf_counter)
    future: asyncio.Future[Answer] | None = None
    cancelled: bool = False
    tensor: NDArray[Any] | None = None
    decode: float = 0.0
    decoded_apart: bool = False  # in a decoder thread, whose time is not that of the batch
    queued: float = 0.0  # seconds


@dataclass(frozen=True, slots=True)
class BatchReport:
    """One run of a model, for the metrics."""

    model: ServedModel
    jobs: Sequence[Job]
    images: int
    inference: float
    failed: bool


Outcome = tuple[Job, Answer | BaseException]


def group_by_model(jobs: Sequence[Job], max_batch: int) -> list[list[Job]]:
    """Split jobs into batches of one model and at most `max_batch` images (one job may be larger)."""
    groups: dict[int, list[list[Job]]] = {}
    for job in jobs:
        of_model = groups.setdefault(id(job.model), [[]])
        if of_model[-1] and sum(other.count for other in of_model[-1]) + job.count > max_batch:
            of_model.append([])
        of_model[-1].append(job)
    return [group for of_model in groups.values() for group in of_model]


def rank(values: NDArray[np.float32], top_k: int) -> list[list[tuple[int, float]]]:
    """Return the `top_k` largest values of every row with their indexes, largest first."""
    order = (-values).argsort(axis=1, kind="stable")[:, :top_k]
    chosen = values[np.arange(len(values))[:, None], order]
    return [list(zip(*pair, strict=True)) for pair in zip(order.tolist(), chosen.tolist(), strict=True)]


def run_group(group: Sequence[Job]) -> tuple[list[Outcome], BatchReport]:
    """Run one batch and split its outputs; a failure is the outcome of every job."""
    model, begun = group[0].model, time.perf_counter()
    images = sum(job.count for job in group)
    try:
        tensors = [job.tensor for job in group if job.tensor is not None]
        outputs = model.run(tensors[0] if len(tensors) == 1 else np.concatenate(tensors))
        inference = time.perf_counter() - begun
        model.observe(images, inference)
        outcomes = split_outputs(group, outputs, begun, inference)
    except Exception as error:
        return [(job, error) for job in group], BatchReport(model, group, images, 0.0, failed=True)
    return outcomes, BatchReport(model, group, images, inference, failed=False)


def split_outputs(group: Sequence[Job], outputs: NDArray[np.float32], begun: float, inference: float) -> list[Outcome]:
    """Give every job its rows of the outputs, and its best classes."""
    most = max(job.top_k for job in group)
    best = rank(group[0].model.scores(outputs), most) if most else []
    outcomes: list[Outcome] = []
    row = 0
    for job in group:
        job.queued = max(0.0, begun - job.created - job.decode)
        ranking = best[row][: job.top_k] if job.top_k else []
        rows = outputs[row : row + job.count]
        outcomes.append((job, Answer(rows, ranking, job.decode, job.queued, inference, len(outputs), begun)))
        row += job.count
    return outcomes
