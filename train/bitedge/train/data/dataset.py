"""What a data set offers the trainer and the exporter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bitedge.train.data.preprocessing import Preprocessing
from bitedge.train.errors import TrainError

Arrays: TypeAlias = tuple[NDArray[np.uint8], NDArray[np.int64]]
Batch: TypeAlias = tuple[Tensor, Tensor]

SPLITS = ("train", "validation", "test")


class Loader(Protocol):
    """Batches of one split, on the training device."""

    def __len__(self) -> int:
        """Return the number of batches that this process sees in an epoch."""
        ...

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        """Yield (float32 images `[N, 3, H, W]`, laid out channels last; int64 labels) of epoch `number`.

        The batches depend on the seed, `number`, rank and world only: a resumed run sees what an uninterrupted one
        does. `start` skips that many batches, without making them.
        """
        ...


class Dataset(ABC):
    """A named data set with the splits `train`, `validation` (held out of the training images) and `test`."""

    name: str
    labels: list[str]
    preprocessing: Preprocessing

    @abstractmethod
    def size(self, split: str) -> int:
        """Return the number of images in a split; 0 for `validation` when nothing is held out."""

    @abstractmethod
    def arrays(self, split: str, *, limit: int | None = None) -> Arrays:
        """Return uint8 images `[N, H, W, 3]`, preprocessed but not normalized, and their int64 labels.

        With `limit`, at most so many, spread evenly over the split.
        """

    @abstractmethod
    def loader(
        self,
        split: str,
        *,
        batch_size: int,
        device: torch.device | str = "cpu",
        seed: int = 0,
        augment: bool = False,
        shuffle: bool | None = None,
        rank: int = 0,
        world: int = 1,
    ) -> Loader:
        """Return the batches of a split; `batch_size` counts the images of a step over all `world` processes.

        `shuffle` (by default for `train` only) gives every epoch its own order and drops an incomplete last batch;
        otherwise every image comes once, in order. `augment` applies the data set's random crops and flips.
        """

    def limited(self, count: int) -> Dataset:
        """Return the same data set with only `count` training images, spread evenly; nothing else changes."""
        raise TrainError(f"data.limit = {count}: data set {self.name!r} cannot be limited; remove it")

    @property
    def train(self) -> Arrays:
        """All training images and labels."""
        return self.arrays("train")

    @property
    def validation(self) -> Arrays:
        """All held-out images and labels."""
        return self.arrays("validation")

    @property
    def test(self) -> Arrays:
        """All test images and labels."""
        return self.arrays("test")


def check_split(split: str) -> None:
    """Refuse a split that does not exist."""
    if split not in SPLITS:
        raise TrainError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")


def spread(size: int, limit: int | None) -> NDArray[np.int64]:
    """Return `limit` of `size` indices, spread evenly; all of them without a limit."""
    if limit is not None and limit < 1:
        raise TrainError(f"limit must be positive, got {limit}")
    count = size if limit is None else min(size, limit)
    return np.arange(count, dtype=np.int64) * size // max(count, 1)
