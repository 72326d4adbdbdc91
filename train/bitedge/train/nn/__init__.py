"""Binary layers and the normalizations between them."""

from __future__ import annotations

from torch import nn

from bitedge.train.nn.binary_layer import BinaryLayer, make_real, make_real_weights
from bitedge.train.nn.conv import BinaryConv2d
from bitedge.train.nn.linear import BinaryLinear
from bitedge.train.nn.norm import ChannelLayerNorm, batch_norm, make_norm
from bitedge.train.nn.reactivation import RPReLU, RSign

LEAF_LAYERS: tuple[type[nn.Module], ...] = (BinaryConv2d, BinaryLinear, ChannelLayerNorm)
"""The layers that a `torch.fx` tracer must keep whole."""

__all__ = [
    "LEAF_LAYERS",
    "BinaryConv2d",
    "BinaryLayer",
    "BinaryLinear",
    "ChannelLayerNorm",
    "RPReLU",
    "RSign",
    "batch_norm",
    "make_norm",
    "make_real",
    "make_real_weights",
]
