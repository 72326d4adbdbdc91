"""The models of the paper and others, and the registry that holds them and yours."""

from __future__ import annotations

from bitedge.train.models.binarynet import BinaryNet
from bitedge.train.models.binaryresnet import BinaryResNet
from bitedge.train.models.birealnet import BiRealNet18
from bitedge.train.models.registry import NETWORKS, create_model, find_factory, list_models, register_model
from bitedge.train.models.whitenet import WhiteNet
from bitedge.train.models.xnornet import XnorNet

for _model in (BinaryNet, XnorNet, BiRealNet18, BinaryResNet):
    register_model(_model)

__all__ = [
    "NETWORKS",
    "BiRealNet18",
    "BinaryNet",
    "BinaryResNet",
    "WhiteNet",
    "XnorNet",
    "create_model",
    "find_factory",
    "list_models",
    "register_model",
]
