"""What a recipe may say: pydantic models, whose fields, types and ranges are written here and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import tomli_w
from pydantic import BaseModel, Field, model_validator

from bitedge.train.recipes.optimizer import OPTIMIZERS, AnyOptimizer, OptimizerRecipe, SwitchRecipe
from bitedge.train.recipes.schedule import KINDS, NotNegative, Positive
from bitedge.train.recipes.validation import Record, plain

Count: TypeAlias = Annotated[int, Field(ge=0)]
Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]
Side: TypeAlias = Annotated[int, Field(ge=8)]


class DataRecipe(Record):
    """Which images, how many are held out, how they are augmented and brought to numbers.

    `name` is `digits`, `cifar10` or `folder`; a data set given to `fit` as an object leaves its own.
    `flip = true` mirrors half of the images at random, `"alternating"` each image in every second epoch (Jordan,
    https://arxiv.org/abs/2404.00498).
    """

    name: str = ""
    augment: bool = True
    shift: Count | None = None  # pixels of random shift, where images live in memory; the set's own unless given
    flip: bool | Literal["alternating"] | None = None  # mirror images that live in memory; the set's own unless given
    border: Literal["black", "reflect"] = "black"  # what a shift moves in
    rand_augment: Count = 0  # random operations on each image (https://arxiv.org/abs/1909.13719)
    magnitude: Annotated[float, Field(ge=0, le=30)] = 9.0  # of those operations
    cutout: Count = 0  # side of a black square in each image (https://arxiv.org/abs/1708.04552)
    mixup: NotNegative = 0.0  # alpha of mixing two images (https://arxiv.org/abs/1710.09412)
    cutmix: NotNegative = 0.0  # alpha of pasting a part of another image (https://arxiv.org/abs/1905.04899)
    normalization: Literal["dyadic", "paper", "imagenet"] = "dyadic"
    validation: Count = 0  # images held out of the training split, the same ones for every seed
    size: Side | None = None  # side of the image fed to the network (folders)
    resize: Side | None = None  # shorter side before the centre crop (folders)
    limit: Annotated[int, Field(ge=2)] | None = None  # only so many training images, spread over the split
    workers: Count = 0  # decoding processes (folders)


class NetworkRecipe(Record):
    """A registered model (`bitedge.train.list_models`) or `package.module:factory`, and its keyword arguments.

    The number of classes comes from the data. `init` names a run folder whose weights the network starts from. Without
    a name, the network is given to `fit` as an object.
    """

    name: str = ""
    arguments: dict[str, Any] = Field(default_factory=dict)
    init: str | None = None


class LossRecipe(Record):
    """What is minimized: cross-entropy with the labels, and with the answers of a teacher if one is named.

    `label_smoothing`: Szegedy et al., https://arxiv.org/abs/1512.00567. `distillation` is `kl`, the divergence at a
    `temperature` (Hinton et al., https://arxiv.org/abs/1503.02531), or `logits`, their mean squared difference (Ba and
    Caruana, https://arxiv.org/abs/1312.6184).
    """

    label_smoothing: Share = 0.0
    teacher: str | None = None  # a run folder
    answers: Literal["views", "images"] = "views"  # of the teacher: to augmented views, or to images, once
    distillation: Literal["kl", "logits"] = "kl"
    teacher_share: Share = 0.5
    temperature: Positive = 2.0


class Execution(Record):
    """How to run it: none of this is part of the method, all of it is recorded."""

    device: str = "auto"
    precision: Literal["fp32", "fp16", "bf16"] = "fp32"
    compile: bool = False
    channels_last: bool = True
    sync_batchnorm: bool = False
    deterministic: bool = True
    threads: Count = 0  # 0: as torch chooses
    checkpoint_steps: Count = 0  # next to the checkpoint of every epoch, one every so many steps
    telemetry_steps: Count = 20  # observe one optimizer step of so many; 0: none
    loggers: list[Literal["tensorboard", "wandb", "mlflow"]] = Field(default_factory=list)  # beside the run folder
    hash_steps: Annotated[int, Field(ge=1)] = 100  # several processes: compare the binary weights every so many steps


class Recipe(Record):
    """One experiment, complete."""

    name: str
    title: str = ""
    expected: str = ""
    cost: str = ""
    epochs: Annotated[int, Field(ge=1)]
    batch_size: Annotated[int, Field(ge=2)]
    renorm: Count = 0  # batches over which BatchNorm's statistics are estimated anew after each epoch; 0: running ones
    ema: Annotated[float, Field(ge=0, lt=1)] = 0.0  # decay of the average of the real parameters; 0: none
    seed: Count = 0
    data: DataRecipe = Field(default_factory=DataRecipe)
    network: NetworkRecipe = Field(default_factory=NetworkRecipe)
    if TYPE_CHECKING:
        optimizer: OptimizerRecipe
    else:
        optimizer: AnyOptimizer
    loss: LossRecipe = Field(default_factory=LossRecipe)
    execution: Execution = Field(default_factory=Execution)

    @model_validator(mode="after")
    def _check_together(self) -> Recipe:
        switch = self.optimizer.switch
        if switch is not None and switch.epoch >= self.epochs:
            raise ValueError(f"optimizer.switch.epoch = {switch.epoch}: expected 1 to {self.epochs - 1}")
        if self.batch_size % self.optimizer.accumulate:
            raise ValueError(
                f"optimizer.accumulate = {self.optimizer.accumulate} does not divide batch_size = {self.batch_size}"
            )
        return self

    def to_toml(self) -> str:
        """Write the recipe back, every default spelled out."""
        return tomli_w.dumps(plain(self))


MODELS: dict[str, type[BaseModel]] = {
    "data": DataRecipe,
    "network": NetworkRecipe,
    "loss": LossRecipe,
    "execution": Execution,
    "switch": SwitchRecipe,
    **OPTIMIZERS,
    **KINDS,
}
"""The models of a recipe's inner tables, by key or by the tag that chooses them."""
