"""What a run is made of, from its recipe or from the objects given to `fit`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from bitedge.train.data import Dataset
from bitedge.train.engine.build import build_dataset, build_network, network_arguments, prepare_dataset
from bitedge.train.engine.callbacks import Callback
from bitedge.train.engine.distributed import Group
from bitedge.train.engine.teacher import Teacher
from bitedge.train.errors import TrainError
from bitedge.train.models.whitenet import WhiteNet
from bitedge.train.recipes.recipe import Recipe


@dataclass(frozen=True)
class Given:
    """The objects that the caller of `fit` brought along."""

    model: nn.Module | None = None
    dataset: Dataset | None = None
    teacher: nn.Module | Teacher | None = None
    callbacks: Sequence[Callback] = field(default_factory=tuple)


def find_dataset(recipe: Recipe, root: Path | None, given: Given) -> Dataset:
    """Return the data set given as an object, or the one that the recipe names."""
    if given.dataset is not None:
        return prepare_dataset(given.dataset, recipe.data)
    return build_dataset(recipe.data, root)


def make_module(recipe: Recipe, dataset: Dataset, group: Group, given: Given) -> tuple[nn.Module, dict[str, Any]]:
    """Return the network on its device, and the keyword arguments that it was built with.

    A recipe's network starts from the recipe's seed; a network given as an object keeps the weights that it has.
    """
    torch.manual_seed(recipe.seed)
    layout = torch.channels_last if recipe.execution.channels_last else torch.contiguous_format
    arguments: dict[str, Any] = {}
    module = given.model
    if module is None:
        arguments = network_arguments(recipe, len(dataset.labels), dataset.preprocessing["size"][0])
        module = build_network(recipe.network.name, arguments)
        if isinstance(module, WhiteNet):
            module.whiten_by(first_images(dataset))
    module = module.to(group.device, memory_format=layout)  # type: ignore[call-overload]
    if recipe.execution.sync_batchnorm:
        if group.device.type != "cuda":
            raise TrainError("execution.sync_batchnorm needs GPUs: torch has it for CUDA only; set it to false")
        module = nn.SyncBatchNorm.convert_sync_batchnorm(module)  # type: ignore[no-untyped-call]
    return module, arguments


def first_images(dataset: Dataset, count: int = 5000) -> Tensor:
    """Return some training images, normalized, without augmentation."""
    loader = dataset.loader("train", batch_size=min(count, dataset.size("train")), shuffle=False)
    images, _ = next(iter(loader.epoch(0)))
    return images


def wrap_module(module: nn.Module, recipe: Recipe, group: Group) -> nn.Module:
    """Return the module as it is called in training: in several processes, compiled, or plain."""
    if group.world > 1:
        device_ids = [group.device.index] if group.device.type == "cuda" else None
        module = DistributedDataParallel(module, device_ids=device_ids)
    if recipe.execution.compile:
        module.compile()
    return module.train()


def unsynced(network: nn.Module) -> AbstractContextManager[Any]:
    """Keep gradients in this process, until the last part of a batch."""
    return network.no_sync() if isinstance(network, DistributedDataParallel) else nullcontext()
