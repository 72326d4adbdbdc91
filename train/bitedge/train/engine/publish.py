"""The files of a run folder that others read: weights, model.json, curves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import nn

from bitedge.train.data import Dataset
from bitedge.train.engine.checkpoint import save_module, write_text
from bitedge.train.recipes.recipe import Recipe


def publish(
    folder: Path,
    module: nn.Module,
    recipe: Recipe,
    dataset: Dataset,
    *,
    arguments: dict[str, Any],
    root: Path | None,
    progress: dict[str, Any],
    is_best: bool,
) -> None:
    """Write the weights of the last epoch, and of the best if this is it, and the facts about them.

    `progress` becomes the table `training` of model.json: epochs, scores, time.
    """
    save_module(folder / "last.safetensors", module)
    if is_best:
        save_module(folder / "best.safetensors", module)
    kind = type(module)
    about = {
        "network": {
            "name": recipe.network.name,
            "arguments": arguments,
            "class": f"{kind.__module__}:{kind.__qualname__}",
        },
        "labels": list(dataset.labels),
        "preprocessing": dict(dataset.preprocessing),
        "data": {"name": recipe.data.name, "root": None if root is None else str(root)},
        "training": {"recipe": recipe.name, "seed": recipe.seed, "epochs": recipe.epochs, **progress},
    }
    write_text(folder / "model.json", json.dumps(about, indent=2, ensure_ascii=False) + "\n")


def describe_epoch(row: dict[str, Any], epochs: int) -> str:
    """One line about an epoch."""
    text = (
        f"epoch {row['epoch']}/{epochs}  loss {row['train_loss']:.4f}  train {100 * row['train_accuracy']:.2f} %  "
        f"{row['split']} {100 * row['accuracy']:.2f} %"
    )
    if "flip_ratio" in row:
        text += f"  flips {row['flip_ratio']:.1e}"
    return f"{text}  {row['images_per_second']:.0f} images/s"
