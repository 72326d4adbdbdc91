"""Training of binarized networks: optimizers, layers, networks, data, recipes.

The public names are imported on first use, so that reading one does not load the rest.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from bitedge.train import _moved
from bitedge.train.onednn import avoid_hidden_tiles

avoid_hidden_tiles()  # before the first operation of torch

if TYPE_CHECKING:
    from bitedge.train.data import load_dataset
    from bitedge.train.engine.callbacks import Callback, MLflow, TensorBoard, WandB
    from bitedge.train.engine.run import Run, from_pretrained, list_pretrained, load_run
    from bitedge.train.engine.teacher import Teacher
    from bitedge.train.engine.trainer import fit
    from bitedge.train.errors import TrainError
    from bitedge.train.models import (
        NETWORKS,
        BinaryNet,
        BiRealNet18,
        XnorNet,
        create_model,
        list_models,
        register_model,
    )
    from bitedge.train.models.summary import summarize
    from bitedge.train.nn import BinaryConv2d, BinaryLinear, ChannelLayerNorm, RPReLU, RSign
    from bitedge.train.nn.parameter import BinaryParameter, is_binary
    from bitedge.train.optim import Bop, Bop2ndOrder, ModelOptimizer
    from bitedge.train.recipes.recipe import Recipe, load_recipe

__all__ = [
    "NETWORKS",
    "BiRealNet18",
    "BinaryConv2d",
    "BinaryLinear",
    "BinaryNet",
    "BinaryParameter",
    "Bop",
    "Bop2ndOrder",
    "Callback",
    "ChannelLayerNorm",
    "MLflow",
    "ModelOptimizer",
    "RPReLU",
    "RSign",
    "Recipe",
    "Run",
    "Teacher",
    "TensorBoard",
    "TrainError",
    "WandB",
    "XnorNet",
    "create_model",
    "fit",
    "from_pretrained",
    "is_binary",
    "list_models",
    "list_pretrained",
    "load_dataset",
    "load_recipe",
    "load_run",
    "register_model",
    "summarize",
]

_HOMES = {
    "data": ("load_dataset",),
    "engine.run": ("Run", "from_pretrained", "list_pretrained", "load_run"),
    "engine.trainer": ("fit",),
    "errors": ("TrainError",),
    "engine.callbacks": ("Callback", "MLflow", "TensorBoard", "WandB"),
    "engine.teacher": ("Teacher",),
    "models": ("NETWORKS", "BinaryNet", "BiRealNet18", "XnorNet", "create_model", "list_models", "register_model"),
    "models.summary": ("summarize",),
    "nn": ("BinaryConv2d", "BinaryLinear", "ChannelLayerNorm", "RPReLU", "RSign"),
    "nn.parameter": ("BinaryParameter", "is_binary"),
    "optim": ("Bop", "Bop2ndOrder", "ModelOptimizer"),
    "recipes.recipe": ("Recipe", "load_recipe"),
}
_moved.install()


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
