"""Measure the network of a run after an epoch, with BatchNorm statistics recomputed if the recipe asks for it."""

from __future__ import annotations

from torch import nn

from bitedge.train.data import Dataset, Loader
from bitedge.train.engine.distributed import Group
from bitedge.train.engine.evaluate import Score, evaluate
from bitedge.train.engine.renorm import reestimate_norms
from bitedge.train.recipes.recipe import Recipe

EVALUATION_BATCH = 250


class Measurement:
    """Scores of a network on the splits of a data set, whose loaders are kept from epoch to epoch."""

    def __init__(self, recipe: Recipe, dataset: Dataset, module: nn.Module, group: Group) -> None:
        self.recipe, self.dataset, self.module, self.group = recipe, dataset, module, group
        self._loaders: dict[str, Loader] = {}

    def renorm(self) -> None:
        """Recompute BatchNorm's statistics, where the recipe asks for it, from training images as they are."""
        if not self.recipe.renorm:
            return
        if "renorm" not in self._loaders:
            self._loaders["renorm"] = self.dataset.loader(
                "train", batch_size=self.recipe.batch_size, device=self.group.device, seed=self.recipe.seed
            )
        reestimate_norms(self.module, self._loaders["renorm"], self.recipe.renorm)

    def score(self, split: str) -> Score:
        """Return loss and accuracies on a split; each process measures its share of the images."""
        if split not in self._loaders:
            self._loaders[split] = self.dataset.loader(
                split,
                batch_size=EVALUATION_BATCH * self.group.world,
                device=self.group.device,
                rank=self.group.rank,
                world=self.group.world,
            )
        channels_last = self.recipe.execution.channels_last
        return evaluate(self.module, self._loaders[split], self.group, channels_last=channels_last)
