"""Training of binarized networks: optimizers, layers, networks, data, recipes.

The public names are imported on first use, so that reading one does not load the rest.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bitedge.train.binary import BinaryParameter, is_binary
    from bitedge.train.data import load_dataset
    from bitedge.train.errors import TrainError
    from bitedge.train.layers import BinaryConv2d, BinaryLinear, ChannelLayerNorm
    from bitedge.train.networks import NETWORKS, BinaryNet, BiRealNet18, XnorNet
    from bitedge.train.optim import Bop, Bop2ndOrder, ModelOptimizer
    from bitedge.train.run import Run, load_run
    from bitedge.train.summary import summarize
    from bitedge.train.trainer import fit

__all__ = [
    "NETWORKS",
    "BiRealNet18",
    "BinaryConv2d",
    "BinaryLinear",
    "BinaryNet",
    "BinaryParameter",
    "Bop",
    "Bop2ndOrder",
    "ChannelLayerNorm",
    "ModelOptimizer",
    "Run",
    "TrainError",
    "XnorNet",
    "fit",
    "is_binary",
    "load_dataset",
    "load_run",
    "summarize",
]

_HOMES = {
    "binary": ("BinaryParameter", "is_binary"),
    "data": ("load_dataset",),
    "errors": ("TrainError",),
    "layers": ("BinaryConv2d", "BinaryLinear", "ChannelLayerNorm"),
    "networks": ("NETWORKS", "BinaryNet", "BiRealNet18", "XnorNet"),
    "optim": ("Bop", "Bop2ndOrder", "ModelOptimizer"),
    "run": ("Run", "load_run"),
    "summary": ("summarize",),
    "trainer": ("fit",),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
