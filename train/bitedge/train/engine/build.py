"""Build the data set and the network that a recipe names."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from bitedge.train.data import DATASETS, EMBEDDED, ArrayDataset, Dataset, load_dataset
from bitedge.train.errors import TrainError
from bitedge.train.models import create_model, find_factory
from bitedge.train.models.registry import accepts
from bitedge.train.recipes.optimizer import LatentRecipe
from bitedge.train.recipes.recipe import DataRecipe, Recipe
from bitedge.train.recipes.validation import nearest

ENGINE_ARGUMENTS = ("num_classes", "latent", "real", "real_weights")
"""Keyword arguments of a network that the data and the optimizer decide."""


CROP = {"shift": "pad", "border": "border", "flip": "flip"}
BATCH = ("rand_augment", "magnitude", "cutout", "mixup", "cutmix")
"""Fields of a recipe's data that are fields of `CropFlip` and of `BatchAugmentation`."""


def build_dataset(recipe: DataRecipe, root: Path | None) -> Dataset:
    """Read the data set that a recipe names."""
    options: dict[str, Any] = {"validation": recipe.validation, "normalization": recipe.normalization}
    if recipe.name == "folder":
        options |= {"size": recipe.size, "resize": recipe.resize, "workers": recipe.workers}
    return prepare_dataset(load_dataset(recipe.name, root, **options), recipe)


def prepare_dataset(dataset: Dataset, recipe: DataRecipe) -> Dataset:
    """Apply to a data set what a recipe says of any: `limit`, and augmentation that is not the default."""
    if recipe.limit is not None:
        dataset = dataset.limited(recipe.limit)
    asked = {name: getattr(recipe, name) for name in (*CROP, *BATCH)}
    changes = {name: value for name, value in asked.items() if value != DataRecipe.model_fields[name].default}
    if not changes:
        return dataset
    if not isinstance(dataset, ArrayDataset):
        name, value = next(iter(changes.items()))
        raise TrainError(f"data.{name} = {value}: images of a folder have their own augmentation; remove it")
    batch = replace(dataset.augmentation.batch, **{name: changes[name] for name in BATCH if name in changes})
    crop = {field: changes[name] for name, field in CROP.items() if name in changes}
    dataset.augmentation = replace(dataset.augmentation, batch=batch, **crop)
    return dataset


def needs_folder(recipe: DataRecipe) -> bool:
    """Whether the data set is read from a folder that the caller names."""
    if recipe.name not in DATASETS:
        raise TrainError(f"data.name = {recipe.name!r}: {nearest(recipe.name, DATASETS)}; or give fit a dataset=...")
    return recipe.name not in EMBEDDED


def network_arguments(recipe: Recipe, num_classes: int, size: int) -> dict[str, Any]:
    """All keyword arguments of a recipe's network: its own, those of the data, and those of the optimizer's rule."""
    factory = find_factory(recipe.network.name)
    known = inspect.signature(factory).parameters
    for name in recipe.network.arguments:
        if not accepts(factory, name) or name in ENGINE_ARGUMENTS:
            raise TrainError(f"unknown key 'network.arguments.{name}': {nearest(name, known)}")
    arguments = dict(recipe.network.arguments)
    if accepts(factory, "num_classes"):
        arguments = {"num_classes": num_classes, **arguments}
    if "image_size" in known:
        arguments.setdefault("image_size", size)
    if recipe.optimizer.rule == "real" and not accepts(factory, "latent"):
        return arguments  # a network that is float by itself
    if not recipe.optimizer.binary:
        if not accepts(factory, "latent"):
            raise TrainError(
                f"network {recipe.network.name!r} takes no latent=True, which rule {recipe.optimizer.rule!r} needs"
            )
        arguments["latent"] = True
    if recipe.optimizer.rule == "real":
        arguments["real"] = True
    if isinstance(recipe.optimizer, LatentRecipe) and recipe.optimizer.stage == "activations":
        arguments["real_weights"] = True
    return arguments


def build_network(name: str, arguments: dict[str, Any]) -> nn.Module:
    """Build a network from what a run folder records: its name and its keyword arguments."""
    return create_model(name, **arguments)
