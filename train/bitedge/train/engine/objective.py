"""What a training step minimizes: cross-entropy with the labels, softened if asked, and with a teacher's answers.

Distillation: Hinton, Vinyals and Dean, "Distilling the Knowledge in a Neural Network",
https://arxiv.org/abs/1503.02531.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from bitedge.train.engine.run import load_run
from bitedge.train.errors import TrainError
from bitedge.train.recipes.recipe import LossRecipe


class Objective:
    """The loss of a batch, by a recipe.

    With a teacher, a run folder whose network knows the same classes, the loss is
    `(1 - share)·CE(labels) + share·T²·KL(teacher || student)`, both distributions at temperature T; T² keeps the
    gradient of the second term at the size of the first.
    """

    def __init__(self, recipe: LossRecipe, classes: int, device: torch.device) -> None:
        self.recipe = recipe
        self.teacher = None
        if recipe.teacher is None:
            return
        run = load_run(Path(recipe.teacher))
        if len(run.labels) != classes:
            raise TrainError(f"loss.teacher {recipe.teacher} knows {len(run.labels)} classes, the data has {classes}")
        self.teacher = run.module.to(device, memory_format=torch.channels_last).requires_grad_(False)  # type: ignore[call-overload]

    def __call__(self, logits: Tensor, labels: Tensor, images: Tensor) -> Tensor:
        """The mean loss of a batch; `images` are what the network saw, for the teacher sees the same."""
        loss = F.cross_entropy(logits, labels, label_smoothing=self.recipe.label_smoothing)
        if self.teacher is None:
            return loss
        with torch.no_grad():
            answers = self.teacher(images).float()
        hot = self.recipe.temperature
        told = F.kl_div(
            F.log_softmax(logits / hot, dim=1),
            F.log_softmax(answers / hot, dim=1),
            log_target=True,
            reduction="batchmean",
        )
        share = self.recipe.teacher_share
        return (1 - share) * loss + share * hot**2 * told
