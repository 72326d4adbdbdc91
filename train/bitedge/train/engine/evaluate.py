"""Accuracy and loss of a network on a split, shared among the processes of a group."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import nn

from bitedge.train.data import Loader
from bitedge.train.engine.distributed import Group


@dataclass(frozen=True)
class Score:
    """Mean cross-entropy, top-1 and top-5 accuracy (shares between 0 and 1), and the number of images."""

    loss: float
    accuracy: float
    top5: float
    images: int

    def as_dict(self) -> dict[str, float]:
        """Return the score as plain data."""
        return asdict(self)


@torch.inference_mode()
def evaluate(module: nn.Module, loader: Loader, group: Group, *, channels_last: bool = True) -> Score:
    """Measure a network in evaluation mode, always in float32, and put its mode back."""
    training = module.training
    module.eval()
    sums = torch.zeros(4, dtype=torch.float64, device=group.device)
    for images, labels in loader.epoch(0):
        if not channels_last:
            images = images.contiguous()
        logits = module(images).float()
        ranked = logits.topk(min(5, logits.shape[1]), dim=1).indices
        hits = ranked == labels[:, None]
        sums[0] += F.cross_entropy(logits, labels, reduction="sum")
        sums[1] += hits[:, 0].sum()
        sums[2] += hits.sum()
        sums[3] += len(labels)
    module.train(training)
    loss, first, five, images = group.sum(sums).tolist()
    return Score(loss / images, first / images, five / images, int(images))
