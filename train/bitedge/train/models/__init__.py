"""The models of the paper, and the registry that holds them and yours."""

from __future__ import annotations

from bitedge.train.models.binarynet import BinaryNet
from bitedge.train.models.birealnet import BiRealNet18
from bitedge.train.models.registry import NETWORKS, create_model, find_factory, list_models, register_model
from bitedge.train.models.xnornet import XnorNet

for _model in (BinaryNet, XnorNet, BiRealNet18):
    register_model(_model)

__all__ = [
    "NETWORKS",
    "BiRealNet18",
    "BinaryNet",
    "XnorNet",
    "create_model",
    "find_factory",
    "list_models",
    "register_model",
]
