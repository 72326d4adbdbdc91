"""The models of the paper and others, and the registry that holds them and yours."""

from __future__ import annotations

from bitedge.train.models.binarynet import BinaryNet
from bitedge.train.models.binaryresnet import BinaryResNet
from bitedge.train.models.birealnet import BiRealNet18
from bitedge.train.models.bnext import BNextT
from bitedge.train.models.cifar import ResNet20, VGGSmall
from bitedge.train.models.densenet import BinaryDenseNet28
from bitedge.train.models.quicknet import QuickNet, quicknet_large, quicknet_small
from bitedge.train.models.reactnet import ReActNet18, ReActNetA
from bitedge.train.models.registry import NETWORKS, create_model, find_factory, list_models, register_model
from bitedge.train.models.whitenet import WhiteNet
from bitedge.train.models.xnornet import XnorNet

for _model in (BinaryNet, XnorNet, BiRealNet18, BinaryResNet, ReActNet18, QuickNet, quicknet_small, quicknet_large):
    register_model(_model)
for _name, _class in {
    "reactnet_a": ReActNetA,
    "binarydensenet28": BinaryDenseNet28,
    "bnext_t": BNextT,
    "resnet20": ResNet20,
    "vgg_small": VGGSmall,
}.items():
    register_model(_class, name=_name)

__all__ = [
    "NETWORKS",
    "BNextT",
    "BiRealNet18",
    "BinaryDenseNet28",
    "BinaryNet",
    "BinaryResNet",
    "QuickNet",
    "ReActNet18",
    "ReActNetA",
    "ResNet20",
    "VGGSmall",
    "WhiteNet",
    "XnorNet",
    "create_model",
    "find_factory",
    "list_models",
    "quicknet_large",
    "quicknet_small",
    "register_model",
]
