"""A teacher's answers to all training images, computed once and kept beside the teacher for the next students."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bitedge.train.data import ArrayDataset, Dataset
from bitedge.train.engine.checkpoint import write_bytes
from bitedge.train.errors import TrainError

BATCH = 250


def cached_answers(
    teacher: Callable[[Tensor], Tensor], dataset: Dataset, folder: Path | None, device: torch.device
) -> Tensor:
    """Return the teacher's logits `[N, classes]` for the training images as they are, without shift or colour.

    Where the augmentation mirrors, they are the mean over the image and its mirror image. In `folder`, the run of the
    teacher, they are kept under a name made from its weights, the images and the normalization.
    """
    if not isinstance(dataset, ArrayDataset):
        raise TrainError("loss.answers = 'images' needs a data set in memory: use 'views' for a folder of images")
    augmentation = dataset.augmentation
    if augmentation.batch.mixup or augmentation.batch.cutmix:
        raise TrainError("loss.answers = 'images' has no answers for mixed images: use 'views', or no mixup and cutmix")
    mirror = bool(augmentation.flip)
    path = None if folder is None else folder / f"answers-{_key(dataset, folder, mirror)}.npy"
    if path is not None and path.exists():
        return torch.tensor(np.load(path), device=device)
    loader = dataset.loader("train", batch_size=BATCH, device=device, shuffle=False)
    parts = []
    for images, _ in loader.epoch(0):
        answers = teacher(images)
        parts.append((answers + teacher(images.flip(3))) / 2 if mirror else answers)
    logits = torch.cat(parts)
    if path is not None:
        buffer = io.BytesIO()
        np.save(buffer, logits.cpu().numpy())
        write_bytes(path, buffer.getvalue())
    return logits


def _key(dataset: ArrayDataset, folder: Path, mirror: bool) -> str:
    """Name what the answers depend on."""
    digest = hashlib.sha256((folder / "best.safetensors").read_bytes())
    digest.update(np.ascontiguousarray(dataset.arrays("train")[0]).tobytes())
    digest.update(repr((dataset.preprocessing, dataset.labels, mirror)).encode())
    return digest.hexdigest()[:16]
