"""Take the statistics of BatchNorm anew from the weights as they are.

Running averages lag behind weights that flip: they mix the statistics of networks that no longer exist. Plain means
over some batches, after the last flip, belong to the network that is deployed; and they are taken in float32, so that a
network trained in half precision gets the statistics of its exact sums.
"""

from __future__ import annotations

from itertools import islice

import torch
from torch import nn

from bitedge.train.data import Loader


@torch.no_grad()
def reestimate_norms(module: nn.Module, loader: Loader, batches: int) -> None:
    """Replace every running mean and variance by the plain mean over so many batches; the mode is put back."""
    norms = [layer for layer in module.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]
    momenta = [layer.momentum for layer in norms]
    training = module.training
    for layer in norms:
        layer.reset_running_stats()
        layer.momentum = None  # torch's word for the plain mean of all batches since the reset
    module.train()
    for images, _ in islice(loader.epoch(0), batches):
        module(images)
    for layer, momentum in zip(norms, momenta, strict=True):
        layer.momentum = momentum
    module.train(training)
