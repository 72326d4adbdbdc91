"""The networks of the paper, by name."""

from __future__ import annotations

from torch import nn

from bitedge.train.models.binarynet import BinaryNet
from bitedge.train.models.birealnet import BiRealNet18
from bitedge.train.models.xnornet import XnorNet

NETWORKS: dict[str, type[nn.Module]] = {"binarynet": BinaryNet, "xnornet": XnorNet, "birealnet18": BiRealNet18}

__all__ = ["NETWORKS", "BiRealNet18", "BinaryNet", "XnorNet"]
