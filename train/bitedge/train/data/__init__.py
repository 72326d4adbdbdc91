"""Data sets by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bitedge.train.data.arrays import ArrayDataset, CropFlip
from bitedge.train.data.cifar10 import load_cifar10
from bitedge.train.data.dataset import SPLITS, Batch, Dataset, Loader
from bitedge.train.data.digits import load_digits
from bitedge.train.data.folder import FolderDataset, load_folder
from bitedge.train.errors import TrainError

EMBEDDED: dict[str, Callable[..., Dataset]] = {"digits": load_digits}
"""Data sets that need no folder."""

STORED: dict[str, Callable[..., Dataset]] = {"cifar10": load_cifar10, "folder": load_folder}
"""Data sets that are read from a folder, their first argument."""

DATASETS = (*EMBEDDED, *STORED)


def load_dataset(name: str, root: Path | str | None = None, **options: Any) -> Dataset:
    """Return the data set of this name, read from `root` unless it is embedded.

    `options` are the keyword arguments of its own function, such as `validation` and `normalization`.
    """
    try:
        if name in EMBEDDED:
            return EMBEDDED[name](**options)
        if name not in STORED:
            raise TrainError(f"unknown data set {name!r}; expected one of {', '.join(DATASETS)}")
        if root is None:
            raise TrainError(f"data set {name!r} is read from a folder: give it with --data DIR")
        return STORED[name](Path(root), **options)
    except TypeError as error:
        if "keyword argument" not in str(error):
            raise
        raise TrainError(f"data set {name!r}: {error}") from error


__all__ = [
    "DATASETS",
    "EMBEDDED",
    "SPLITS",
    "STORED",
    "ArrayDataset",
    "Batch",
    "CropFlip",
    "Dataset",
    "FolderDataset",
    "Loader",
    "load_cifar10",
    "load_dataset",
    "load_digits",
    "load_folder",
]
