"""From the words of a recipe to its parts: data set, network."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from bitedge.train.data import EMBEDDED, ArrayDataset, Dataset, load_dataset
from bitedge.train.errors import TrainError
from bitedge.train.models import NETWORKS
from bitedge.train.nn import make_real
from bitedge.train.recipes.recipe import DataRecipe, Recipe
from bitedge.train.recipes.validation import nearest


def build_dataset(recipe: DataRecipe, root: Path | None) -> Dataset:
    """Read the data set that a recipe names; `limit` keeps so many training images, spread over the split."""
    options: dict[str, Any] = {"validation": recipe.validation, "normalization": recipe.normalization}
    if recipe.name == "folder":
        options |= {"size": recipe.size, "resize": recipe.resize, "workers": recipe.workers}
    dataset = load_dataset(recipe.name, root, **options)
    if recipe.limit is not None:
        splits = {split: dataset.arrays(split) for split in ("validation", "test")}
        splits["train"] = dataset.arrays("train", limit=recipe.limit)
        augmentation = dataset.augmentation if isinstance(dataset, ArrayDataset) else None
        dataset = ArrayDataset(dataset.name, dataset.labels, dataset.preprocessing, splits, augmentation=augmentation)
    if recipe.shift is not None:
        if not isinstance(dataset, ArrayDataset):
            raise TrainError(f"data.shift = {recipe.shift}: images of a folder have their own augmentation; remove it")
        dataset.augmentation = replace(dataset.augmentation, pad=recipe.shift)
    return dataset


def needs_folder(recipe: DataRecipe) -> bool:
    """Whether the data set is read from a folder that the caller names."""
    return recipe.name not in EMBEDDED


def network_arguments(recipe: Recipe, num_classes: int, size: int) -> dict[str, Any]:
    """All keyword arguments of a recipe's network: its own, those of the data, and those of the optimizer's rule."""
    known = inspect.signature(NETWORKS[recipe.network.name]).parameters
    for name in recipe.network.arguments:
        if name not in known or name in ("num_classes", "latent", "real"):
            raise TrainError(f"unknown key 'network.arguments.{name}': {nearest(name, known)}")
    arguments = {"num_classes": num_classes, **recipe.network.arguments}
    if "image_size" in known:
        arguments.setdefault("image_size", size)
    if recipe.optimizer.rule in ("latent", "real"):
        arguments["latent"] = True
    if recipe.optimizer.rule == "real":
        arguments["real"] = True
    return arguments


def build_network(name: str, arguments: dict[str, Any]) -> nn.Module:
    """Build a network by name, or with `real` its float twin; wrong arguments are the caller's fault."""
    if name not in NETWORKS:
        raise TrainError(f"unknown network {name!r}: {nearest(name, NETWORKS)}")
    arguments = dict(arguments)
    real = arguments.pop("real", False)
    try:
        module = NETWORKS[name](**arguments)
        return make_real(module) if real else module
    except TypeError as error:
        raise TrainError(f"network {name!r} does not take these arguments: {error}") from error
