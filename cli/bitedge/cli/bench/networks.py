"""Networks to measure without training: every architecture with random weights, exported like a real run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitedge.cli.errors import CommandError

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Network:
    """A network as its paper trains it: the recipe that builds it, its classes and its image."""

    recipe: str
    classes: int
    image_size: int


NETWORKS = {
    "birealnet18": Network("imagenet-birealnet18", 1000, 224),
    "xnornet": Network("imagenet-xnornet", 1000, 224),
    "binarynet": Network("cifar10-paper", 10, 32),
    "reactnet18": Network("imagenet-reactnet18-bop2nd", 1000, 224),
    "reactnet_a": Network("imagenet-reactnet-a", 1000, 224),
    "quicknet_small": Network("imagenet-quicknet-small", 1000, 224),
    "quicknet": Network("imagenet-quicknet", 1000, 224),
    "quicknet_large": Network("imagenet-quicknet-large", 1000, 224),
    "binarydensenet28": Network("imagenet-binarydensenet28", 1000, 224),
    "bnext_t": Network("imagenet-bnext-t", 1000, 224),
    "resnet20": Network("cifar10-resnet20", 10, 32),
    "vgg_small": Network("cifar10-vgg-small", 10, 32),
}


def settle(module: nn.Module, shape: tuple[int, int, int], seed: int) -> None:
    """Give every normalization the statistics of real forward passes, and scales and offsets of both signs.

    A fresh network has means of 0 and variances of 1, so that its activations saturate and its logits say nothing.
    """
    import torch
    from torch import nn

    generator = torch.Generator().manual_seed(seed)
    norms = [layer for layer in module.modules() if isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d))]
    for layer in norms:
        layer.momentum = None  # the plain average of all passes
        if layer.affine:
            with torch.no_grad():
                layer.weight.copy_(torch.randn(layer.weight.shape, generator=generator))
                layer.bias.copy_(0.1 * torch.randn(layer.bias.shape, generator=generator))
    module.train()
    with torch.no_grad():
        module(torch.rand((8, *shape), generator=generator) * 2 - 1)
    module.eval()


def build(
    net: str,
    folder: Path,
    *,
    width: int | None = None,
    image_size: int | None = None,
    seed: int = 0,
    formats: Sequence[str] | None = None,
) -> Path:
    """Build a network with random weights, write its run folder and its artifacts, and return the export folder."""
    import torch

    from bitedge.export import export
    from bitedge.train.engine.build import build_network, network_arguments
    from bitedge.train.engine.checkpoint import save_module
    from bitedge.train.recipes.recipe import load_recipe

    row = NETWORKS[net]
    size = image_size or row.image_size
    recipe = load_recipe(row.recipe)
    arguments = network_arguments(recipe, row.classes, size) | ({"width": width} if width else {})
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = build_network(net, arguments)
    settle(module, (3, size, size), seed)
    run = folder / "run"
    run.mkdir(parents=True)
    save_module(run / "best.safetensors", module)
    about: dict[str, Any] = {
        "network": {"name": net, "arguments": arguments},
        "labels": [str(i) for i in range(row.classes)],
        "preprocessing": preprocessing(size),
        "training": {"note": f"random weights, seed {seed}"},
        "data": {"root": None},
    }
    (run / "model.json").write_text(json.dumps(about))
    (run / "recipe.toml").write_text(recipe.to_toml())
    report = export(
        module,
        (3, size, size),
        folder / "export",
        formats=formats,
        labels=about["labels"],
        preprocessing=about["preprocessing"],
        name=type(module).__name__,
        source={"run": "../run", "checkpoint": "best"},
    )
    if "gguf" in report.failures:
        raise CommandError(f"{net} with random weights of seed {seed}: {report.failures['gguf']}")
    return folder / "export"


def preprocessing(size: int) -> dict[str, Any]:
    """The dyadic grid, for all networks: a first layer of ±1 weights stays integer, and others do not mind."""
    return {
        "size": [size, size],
        "resize": None,
        "interpolation": "bilinear",
        "scale": [2 / 256] * 3,
        "offset": [-255 / 256] * 3,
    }
