"""The networks of the paper, by name."""

from __future__ import annotations

from torch import nn

from bitedge.train.networks.binarynet import BinaryNet

NETWORKS: dict[str, type[nn.Module]] = {"binarynet": BinaryNet}

__all__ = ["NETWORKS", "BinaryNet"]
