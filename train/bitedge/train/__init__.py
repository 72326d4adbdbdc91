"""Training of binarized networks: optimizers, layers, networks, data, recipes.

The public names are imported on first use, so that reading one does not load the rest.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bitedge.train.errors import TrainError as TrainError
    from bitedge.train.layers import BinaryConv2d as BinaryConv2d
    from bitedge.train.layers import BinaryLinear as BinaryLinear
    from bitedge.train.layers import ChannelLayerNorm as ChannelLayerNorm
    from bitedge.train.networks import BinaryNet as BinaryNet

_HOMES = {
    "TrainError": "bitedge.train.errors",
    "BinaryConv2d": "bitedge.train.layers",
    "BinaryLinear": "bitedge.train.layers",
    "ChannelLayerNorm": "bitedge.train.layers",
    "BinaryNet": "bitedge.train.networks",
    "XnorNet": "bitedge.train.networks",
    "BiRealNet18": "bitedge.train.networks",
    "Bop": "bitedge.train.optim",
    "Bop2ndOrder": "bitedge.train.optim",
    "ModelOptimizer": "bitedge.train.optim",
    "fit": "bitedge.train.trainer",
    "load_run": "bitedge.train.run",
    "summarize": "bitedge.train.summary",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
