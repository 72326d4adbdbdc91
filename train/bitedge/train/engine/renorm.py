"""Recompute BatchNorm running statistics from the weights as they are.

Running averages lag behind weights that flip: they mix the statistics of networks that no longer exist. Plain means
over some batches, after the last flip, belong to the network that is deployed; and they are taken in float32, so that a
network trained in half precision gets the statistics of its exact sums.
"""

from __future__ import annotations

from itertools import islice

from torch import nn
from torch.optim.swa_utils import update_bn

from bitedge.train.data import Loader


def reestimate_norms(module: nn.Module, loader: Loader, batches: int) -> None:
    """Replace every running mean and variance by the plain mean over so many batches; the mode is put back."""
    update_bn(islice(loader.epoch(0), batches), module)
