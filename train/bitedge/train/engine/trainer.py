"""Train a network by a recipe: `fit` makes a run folder, or continues one, and returns the run.

The batches of an epoch follow from seed and epoch alone, and everything else that a step depends on is in `state.pt`,
so a run that was killed and resumed ends with the same weights, bit for bit on a CPU, as one that was not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from bitedge.train.data import Dataset
from bitedge.train.engine.build import needs_folder
from bitedge.train.engine.callbacks import Callback, make_loggers
from bitedge.train.engine.checkpoint import write_text
from bitedge.train.engine.distributed import join
from bitedge.train.engine.execution import settings
from bitedge.train.engine.parts import Given
from bitedge.train.engine.progress import Progress, Silent, default_progress
from bitedge.train.engine.run import Run, load_run
from bitedge.train.engine.session import Session
from bitedge.train.engine.teacher import Teacher
from bitedge.train.errors import TrainError
from bitedge.train.recipes.recipe import NetworkRecipe, Recipe, load_recipe
from bitedge.train.recipes.validation import plain

WORDS = ("title", "expected", "cost")
"""What a recipe tells its reader; the training does not depend on it."""


def fit(
    recipe: str | Path | Recipe | Mapping[str, Any],
    *,
    out: Path | str,
    model: nn.Module | None = None,
    dataset: Dataset | None = None,
    teacher: nn.Module | Teacher | None = None,
    callbacks: Sequence[Callback] = (),
    data: Path | str | None = None,
    resume: bool = False,
    overrides: Iterable[str] = (),
    progress: Progress | None = None,
) -> Run:
    """Train by a recipe into the folder `out`; return the run with the weights of its best epoch.

    `recipe` is a shipped name, a TOML file, a `Recipe` or a table of the same form; `overrides` are dotted `key=value`
    pairs. With `resume` an interrupted run in `out` goes on; without, a folder that holds a run already is refused.
    Under torchrun every process calls this with the same arguments.

    Args:
        recipe: what decides the run; it need not name a network or a data set that is given as an object.
        out: the run folder.
        model: any module, which is trained in place from the weights that it has; else the recipe's network.
        dataset: any `bitedge.train.data.Dataset`; else the recipe's.
        teacher: any module that answers with logits, or a `Teacher` with its own preprocessing and labels.
        callbacks: loggers and others, see `bitedge.train.engine.callbacks`; beside the recipe's `execution.loggers`.
        data: the folder of the data set, where the recipe's data set needs one.
        resume: go on with what is in `out`.
        overrides: changes to the recipe.
        progress: what a person sees; None: a bar on a terminal, lines elsewhere.
    """
    resolved = name_objects(load_recipe(recipe, overrides), model, dataset)
    folder = Path(out)
    root = None if data is None else Path(data).resolve()
    if dataset is None and needs_folder(resolved.data) and root is None:
        raise TrainError(f"recipe {resolved.name!r} reads {resolved.data.name} images from a folder: give --data DIR")
    if resume and is_finished(folder, resolved):
        return load_run(folder, model=model)
    given = Given(model, dataset, teacher, (*make_loggers(resolved.execution.loggers), *callbacks))
    with join(resolved.execution.device) as group, settings(resolved.execution, group.device):
        report = Silent() if not group.leads else progress or default_progress()
        try:
            if group.leads:
                prepare_folder(folder, resolved, resume, report)
            group.barrier()
            if not (folder / "recipe.toml").exists():
                raise TrainError(
                    f"process {group.rank} does not see {folder}: put --out on storage that all of them share"
                )
            Session(resolved, folder, root, group, report, given).run()
            group.barrier()
        finally:
            report.close()
            for callback in given.callbacks if group.leads else ():
                callback.close()
        return load_run(folder, model=model)


def name_objects(recipe: Recipe, model: nn.Module | None, dataset: Dataset | None) -> Recipe:
    """Return the recipe without the names of what is given as an object; a data set leaves its own."""
    changes: dict[str, Any] = {}
    if model is not None and ":" not in recipe.network.name:
        changes["network"] = NetworkRecipe(init=recipe.network.init)
    if dataset is not None:
        changes["data"] = recipe.data.model_copy(update={"name": dataset.name})
    return recipe.model_copy(update=changes) if changes else recipe


def is_finished(folder: Path, recipe: Recipe) -> bool:
    """Whether a folder holds this very run, complete and measured."""
    try:
        about = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        same = load_recipe(folder / "recipe.toml") == recipe
    except (OSError, json.JSONDecodeError, TrainError):
        return False
    return same and about["training"]["test"] is not None


def prepare_folder(folder: Path, recipe: Recipe, resume: bool, report: Progress) -> None:
    """Make the run folder, or make sure that what is in it is the same run."""
    if folder.exists() and not folder.is_dir():
        raise TrainError(f"{folder} is a file: give a folder to write the run to")
    kept = folder / "recipe.toml"
    if not resume:
        if kept.exists():
            raise TrainError(f"{folder} holds a run already: continue it with --resume, or give another --out")
        folder.mkdir(parents=True, exist_ok=True)
    elif kept.exists():
        check_same(load_recipe(kept), recipe, folder, report)
    else:
        report.note(f"nothing to resume in {folder}: starting afresh")
        folder.mkdir(parents=True, exist_ok=True)
    write_text(kept, recipe.to_toml())


def check_same(old: Recipe, new: Recipe, folder: Path, report: Progress) -> None:
    """Refuse to resume with another method; how it is executed may change, and is said."""
    for key, (before, now) in differences(plain(old), plain(new)).items():
        if key in WORDS:
            continue
        if not key.startswith("execution.") and key != "data.workers":
            raise TrainError(
                f"{folder} was started with {key} = {before}, not {now}: a run cannot change its recipe half-way; "
                "resume without the change, or start another run"
            )
        report.note(f"resuming with {key} = {now} instead of {before}: the result may differ in the last bits")


def differences(old: dict[str, object], new: dict[str, object], where: str = "") -> dict[str, tuple[object, object]]:
    """Compare two nested tables; return the dotted keys whose values differ."""
    found: dict[str, tuple[object, object]] = {}
    for key in sorted(old.keys() | new.keys()):
        before, now = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(now, dict):
            found |= differences(before, now, f"{where}{key}.")
        elif before != now:
            found[where + key] = (before, now)
    return found
