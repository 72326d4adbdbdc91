"""A finished or running training run, read back from its folder.

`docs/architecture.md` lists the files. `load_run` needs neither the optimizer nor the data: it gives the network in
evaluation mode with its labels and preprocessing, which is what export, evaluation and comparison start from.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import nn

from bitedge.train.data import Dataset
from bitedge.train.engine.build import build_dataset, build_network, needs_folder
from bitedge.train.engine.checkpoint import load_module
from bitedge.train.errors import TrainError
from bitedge.train.recipes.recipe import Recipe, load_recipe

Checkpoint = Literal["best", "last"]
BUNDLED = Path(__file__).parents[1] / "pretrained"
"""The runs of the bundled models: recipe, log and weights, one bit for each binary one."""


@dataclass(frozen=True)
class Run:
    """One run: the network with the weights of a checkpoint, and what is known about it."""

    folder: Path
    module: nn.Module
    labels: list[str]
    preprocessing: dict[str, Any]
    training: dict[str, Any]
    recipe: Recipe
    checkpoint: Checkpoint = "best"
    data_root: Path | None = None

    def dataset(self, data: Path | None = None) -> Dataset:
        """Read the data set that the run was trained on, from `data` or from where it was then."""
        root = self.data_root if data is None else Path(data)
        if needs_folder(self.recipe.data) and (root is None or not root.exists()):
            raise TrainError(f"the data of {self.folder} is not at {root}: give its folder with --data DIR")
        return build_dataset(self.recipe.data, root)

    def evaluation(
        self, data: Path | None = None, *, split: str = "test", limit: int | None = None
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return uint8 NHWC images and labels of a split, all or `limit` of them spread evenly."""
        return self.dataset(data).arrays(split, limit=limit)


def list_pretrained() -> list[str]:
    """Return the names of the models that come with the package."""
    return sorted(file.parent.name for file in BUNDLED.glob("*/model.json"))


def from_pretrained(name: str) -> nn.Module:
    """Return a network that comes with the package, with its trained weights, in evaluation mode.

    `load_run(name)` gives its labels, preprocessing and accuracy, too.
    """
    if name not in (known := list_pretrained()):
        raise TrainError(f"no trained model {name!r}: there are {', '.join(known)}")
    return load_run(BUNDLED / name).module


def find_run(name: Path | str) -> Path:
    """The folder of a run: that of a bundled model's name, or the path itself."""
    bundled = BUNDLED / name
    return bundled if bundled.parent == BUNDLED and not Path(name).exists() and bundled.exists() else Path(name)


def load_run(folder: Path | str, *, checkpoint: Checkpoint = "best", model: nn.Module | None = None) -> Run:
    """Read a run folder, or a bundled run by its name; the network is in evaluation mode.

    It carries the weights of the best epoch or of the last; bundled runs have the best only. A network that was given
    to `fit` as an object has no name to build it by: give one of the same shape as `model`, which is filled.
    """
    folder = find_run(folder)
    if checkpoint not in ("best", "last"):
        raise TrainError(f"checkpoint must be 'best' or 'last', got {checkpoint!r}")
    try:
        about: dict[str, Any] = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        network, labels, preprocessing = about["network"], about["labels"], about["preprocessing"]
        training, root = about["training"], about["data"]["root"]
        name, arguments = network["name"], network["arguments"]
    except OSError as error:
        raise TrainError(f"{folder} is not a run folder: cannot read model.json ({error.strerror})") from error
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise TrainError(f"{folder / 'model.json'} is damaged: {error!r}; train again or restore the file") from error
    module = build_network(name, arguments) if model is None else model
    load_module(folder / f"{checkpoint}.safetensors", module)
    recipe = load_recipe(folder / "recipe.toml")
    data_root = None if root is None else Path(root)
    return Run(folder, module.eval(), labels, preprocessing, training, recipe, checkpoint, data_root)
