"""Which images a process sees in an epoch, and in which order: a pure function of seed, epoch, rank and world."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bitedge.train.errors import TrainError


def random_stream(seed: int, epoch: int, *purpose: int) -> np.random.Generator:
    """Return the generator for one use in one epoch; different uses never share numbers."""
    return np.random.default_rng([seed, epoch, *purpose])


@dataclass(frozen=True)
class EpochPlan:
    """The order of a split.

    `batch_size` counts the images of one step over all processes: rank r of w takes every w-th image, so that step k
    trains on the same images whatever the number of processes. With `shuffle` each epoch has its own order, and an
    incomplete last batch is dropped (all processes take the same number of steps); without, every image comes exactly
    once, in order.
    """

    size: int
    batch_size: int
    seed: int = 0
    shuffle: bool = False
    rank: int = 0
    world: int = 1

    def __post_init__(self) -> None:
        if self.world < 1 or not 0 <= self.rank < self.world:
            raise TrainError(f"rank must be in 0..world-1, got rank {self.rank} of {self.world}")
        if self.batch_size < 1 or self.batch_size % self.world:
            raise TrainError(
                f"batch_size must be a positive multiple of the {self.world} processes, got {self.batch_size}"
            )
        if self.seed < 0:
            raise TrainError(f"seed must not be negative, got {self.seed}")
        if self.shuffle and self.size < self.batch_size:
            raise TrainError(f"batch_size {self.batch_size} is larger than the split, which has {self.size} images")

    @property
    def local_batch(self) -> int:
        """Images per step in this process."""
        return self.batch_size // self.world

    def __len__(self) -> int:
        """Return the number of steps of this process in an epoch."""
        if self.shuffle:
            return self.size // self.batch_size
        own = len(range(self.rank, self.size, self.world))
        return -(-own // self.local_batch)

    def own(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return this process's share of one value per image in epoch order."""
        end = len(self) * self.batch_size if self.shuffle else self.size
        return values[:end][self.rank :: self.world]

    def indices(self, epoch: int) -> NDArray[np.int64]:
        """Return the images of this process in this epoch, step after step."""
        order = np.arange(self.size, dtype=np.int64)
        if self.shuffle:
            order = random_stream(self.seed, epoch, 0).permutation(order)
        return self.own(order)


def stratified_holdout(labels: NDArray[np.int64], count: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split indices in two: those kept, and `count` held out with the classes in their proportions.

    Remainders go to the classes with the largest fractions. Both results are sorted.
    """
    if not 0 <= count < max(len(labels), 1):
        raise TrainError(f"cannot hold out {count} of {len(labels)} images")
    classes, sizes = np.unique(labels, return_counts=True)
    ideal = sizes * (count / max(len(labels), 1))
    take = np.floor(ideal).astype(np.int64)
    for position in np.argsort(-(ideal - take), kind="stable")[: count - int(take.sum())]:
        take[position] += 1
    rng = np.random.default_rng(seed)
    held = [rng.permutation(np.flatnonzero(labels == c))[:n] for c, n in zip(classes, take, strict=True)]
    out = np.sort(np.concatenate(held)) if held else np.empty(0, np.int64)
    return np.setdiff1d(np.arange(len(labels)), out), out
