"""What a training step minimizes: cross-entropy with the labels, smoothed if asked, and with a teacher's answers.

Distillation: Hinton, Vinyals and Dean, "Distilling the Knowledge in a Neural Network",
https://arxiv.org/abs/1503.02531; on logits: Ba and Caruana, "Do Deep Nets Really Need to be Deep?",
https://arxiv.org/abs/1312.6184.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bitedge.train.data import Dataset
from bitedge.train.engine.answers import cached_answers
from bitedge.train.engine.run import load_run
from bitedge.train.engine.teacher import Teacher
from bitedge.train.errors import TrainError
from bitedge.train.recipes.recipe import LossRecipe


def find_teacher(recipe: LossRecipe, teacher: nn.Module | Teacher | None) -> Teacher | None:
    """Return the teacher given as an object, or the run that the recipe names, or None."""
    if teacher is not None:
        if recipe.teacher is not None:
            raise TrainError(f"two teachers: loss.teacher = {recipe.teacher!r} and the one given to fit; remove one")
        return teacher if isinstance(teacher, Teacher) else Teacher(teacher)
    if recipe.teacher is None:
        return None
    run = load_run(Path(recipe.teacher))
    return Teacher(run.module, preprocessing=run.preprocessing, labels=run.labels, name=recipe.teacher)


class Objective:
    """The loss of a batch, by a recipe.

    With a teacher the loss is `(1 - share)·CE(labels) + share·D`. D is `T²·KL(teacher || student)`, both distributions
    at temperature T (T² keeps the gradient of the second term at the size of the first), or for `distillation =
    "logits"` the mean squared difference of the logits.
    """

    def __init__(
        self,
        recipe: LossRecipe,
        labels: Sequence[str],
        preprocessing: Any,
        device: torch.device,
        teacher: nn.Module | Teacher | None = None,
    ) -> None:
        self.recipe = recipe
        found = find_teacher(recipe, teacher)
        self.teacher = None if found is None else found.ready(labels, preprocessing, device)
        self.answers: Tensor | None = None

    def remember(self, dataset: Dataset, device: torch.device) -> None:
        """Ask the teacher for all training images at once, where the recipe wants that."""
        if self.teacher is not None and self.recipe.answers == "images":
            folder = None if self.recipe.teacher is None else Path(self.recipe.teacher)
            self.answers = cached_answers(self.teacher, dataset, folder, device)

    def __call__(self, logits: Tensor, labels: Tensor, images: Tensor, index: Tensor | None = None) -> Tensor:
        """Return the mean loss of a batch; `images` are what the network was given, the teacher gets them too.

        `index` says which training images they are made of: with answers remembered, the teacher is not asked again.
        `labels` are classes, or shares of each class (float, `[N, classes]`) where an augmentation mixes images.
        """
        loss = F.cross_entropy(logits, labels, label_smoothing=self.recipe.label_smoothing)
        if self.teacher is None:
            return loss
        answers = self.teacher(images) if self.answers is None or index is None else self.answers[index]
        share = self.recipe.teacher_share
        return (1 - share) * loss + share * self._distance(logits, answers)

    def _distance(self, logits: Tensor, answers: Tensor) -> Tensor:
        if self.recipe.distillation == "logits":
            return F.mse_loss(logits, answers)
        temperature = self.recipe.temperature
        kd_loss = F.kl_div(
            F.log_softmax(logits / temperature, dim=1),
            F.log_softmax(answers / temperature, dim=1),
            log_target=True,
            reduction="batchmean",
        )
        return temperature**2 * kd_loss
