"""CIFAR-10 (Krizhevsky, 2009, https://www.cs.toronto.edu/~kriz/cifar.html), from its official binary batches.

A record is one label byte and 3,072 pixel bytes: 32x32, planes red, green, blue. Six files hold 10,000 records each.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bitedge.train.data.arrays import ArrayDataset, CropFlip
from bitedge.train.data.cifar10_files import FOLDER, LABELS, LABELS_FILE, RECORD_BYTES, TEST_FILE, TRAIN_FILES
from bitedge.train.data.dataset import Arrays
from bitedge.train.data.download import download_cifar10
from bitedge.train.data.plan import stratified_holdout
from bitedge.train.data.preprocessing import Normalization, make_preprocessing
from bitedge.train.errors import TrainError

SPLIT_SEED = 0


def load_cifar10(
    root: Path | str,
    *,
    validation: int = 5000,
    normalization: Normalization = "dyadic",
    download: bool = False,
    records_per_file: int = 10_000,
) -> ArrayDataset:
    """Read CIFAR-10 from `root`, or from `root/cifar-10-batches-bin`; with `download`, fetch it there when missing.

    `validation` training images are held out, stratified, the same ones in every run; 0 trains on all 50,000, as the
    paper does, and leaves only the test split. Training images are padded by 4 black pixels, cropped and mirrored.
    """
    folder = find_cifar10(Path(root), download=download)
    labels = _read_labels(folder / LABELS_FILE)
    parts = [_read_batch(folder / name, records_per_file, len(labels)) for name in TRAIN_FILES]
    images = np.concatenate([part[0] for part in parts])
    targets = np.concatenate([part[1] for part in parts])
    kept, held = stratified_holdout(targets, validation, SPLIT_SEED)
    return ArrayDataset(
        "cifar10",
        labels,
        make_preprocessing((32, 32), normalization=normalization),
        {
            "train": (images[kept], targets[kept]),
            "validation": (images[held], targets[held]),
            "test": _read_batch(folder / TEST_FILE, records_per_file, len(labels)),
        },
        augmentation=CropFlip(pad=4, flip=True),
    )


def find_cifar10(root: Path, *, download: bool = False) -> Path:
    """Return the folder that holds the binary batches: `root` or its `cifar-10-batches-bin`."""
    for folder in (root, root / FOLDER):
        if (folder / TRAIN_FILES[0]).is_file():
            return folder
    if download:
        return download_cifar10(root)
    raise TrainError(
        f"no CIFAR-10 at {root}: expected {TRAIN_FILES[0]} there or in {FOLDER}/; unpack the official "
        "cifar-10-binary.tar.gz there, or ask for the download"
    )


def _read_labels(path: Path) -> list[str]:
    if not path.is_file():
        return list(LABELS)
    names = path.read_text(encoding="utf-8").split()
    if len(names) != len(LABELS):
        raise TrainError(f"{path} must list {len(LABELS)} class names, found {len(names)}")
    return names


def _read_batch(path: Path, records: int, classes: int) -> Arrays:
    if not path.is_file():
        raise TrainError(f"CIFAR-10 is incomplete: {path} is missing; unpack the whole archive")
    expected = records * RECORD_BYTES
    if path.stat().st_size != expected:
        raise TrainError(
            f"{path} must have {expected:,} bytes ({records:,} records), found {path.stat().st_size:,}; "
            "unpack the archive again"
        )
    table = np.fromfile(path, dtype=np.uint8).reshape(records, RECORD_BYTES)
    labels = table[:, 0].astype(np.int64)
    if labels.max(initial=0) >= classes:
        raise TrainError(f"{path} has a label {labels.max()}, expected 0 to {classes - 1}: it is not a CIFAR-10 batch")
    images = np.ascontiguousarray(table[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
    return images, labels
