"""Compare recipes, or variants of one recipe, over several seeds: every run in its own folder, one table of all.

Variants are a TOML file: the recipe, what all of them share (`[set]`), and what each one changes (`[variants.NAME]`).
Runs that are already finished are not repeated, and a run that was cut short is resumed, so a comparison may be
stopped and started again, or widened by more seeds.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from bitedge.train.engine.checkpoint import write_text
from bitedge.train.engine.curves import plot_runs
from bitedge.train.engine.metrics import read_rows
from bitedge.train.engine.progress import Progress, default_progress
from bitedge.train.engine.trainer import fit
from bitedge.train.errors import TrainError
from bitedge.train.recipes.recipe import load_recipe, read_table
from bitedge.train.recipes.validation import Record, read_model

VARIANTS = Path(__file__).parent / "variants"
SMALL = ("cifar10-small", "cifar10-small-bop", "cifar10-small-latent")


class Variants(Record):
    """Changes to one recipe that are to be compared with it and with each other, by name."""

    name: str
    title: str
    recipe: str
    variants: dict[str, dict[str, Any]]
    expected: str = ""
    set: dict[str, Any] = Field(default_factory=dict)

    def entries(self) -> list[Entry]:
        """Each variant as something to train."""
        return [
            Entry(name, self.recipe, [f"{key}={inline(value)}" for key, value in {**self.set, **changes}.items()])
            for name, changes in self.variants.items()
        ]


@dataclass(frozen=True)
class Entry:
    """What is trained with every seed: a recipe and what is changed in it."""

    name: str
    recipe: str | Path
    overrides: list[str]


@dataclass(frozen=True)
class Comparison:
    """What one entry reached: mean and sample deviation over its seeds, accuracies as shares.

    `held_out` is the accuracy of the last epoch on the validation images, by which recipes are to be chosen; it is
    empty where a recipe holds nothing out.
    """

    name: str
    rule: str
    seeds: list[int]
    epochs: int
    held_out: list[float]
    test_last: list[float]
    test_best: list[float]
    train_last: list[float]
    images_per_second: float

    def row(self) -> list[str]:
        """Cells for a table: accuracies in percent, mean and deviation."""
        return [
            self.name,
            self.rule,
            str(len(self.seeds)),
            str(self.epochs),
            spread(self.held_out) if self.held_out else "-",
            spread(self.test_last),
            spread(self.test_best),
            spread(self.train_last),
            f"{self.images_per_second:.0f}",
        ]


HEADER = ["name", "rule", "seeds", "epochs", "validation %", "test last %", "test best %", "train last %", "images/s"]


def spread(shares: Sequence[float]) -> str:
    """Mean and sample deviation in percent; a single value has no deviation."""
    mean = 100 * statistics.fmean(shares)
    return f"{mean:.2f}" if len(shares) < 2 else f"{mean:.2f} ± {100 * statistics.stdev(shares):.2f}"


def load_variants(source: str | Path) -> Variants:
    """Read shipped variants by name, or a TOML file."""
    loaded = read_model(Variants, read_table(source, VARIANTS, "variants"))
    if not loaded.variants:
        raise TrainError(f"{loaded.name} names no variant: give a table [variants.NAME] for each")
    return loaded


def inline(value: Any) -> str:
    """Write a value as TOML takes it on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {inline(inner)}" for key, inner in value.items()) + "}"
    return json.dumps(value)


def compare(
    recipes: Sequence[str | Path] = SMALL,
    *,
    seeds: Sequence[int],
    out: Path | str,
    variants: str | Path | None = None,
    data: Path | str | None = None,
    overrides: Iterable[str] = (),
    progress: Progress | None = None,
) -> list[Comparison]:
    """Train every recipe, or every one of the variants, with every seed into `out`.

    Writes `comparison.json`, `.md` and `.png` there.
    """
    entries = [Entry(load_recipe(recipe).name, recipe, []) for recipe in recipes]
    if variants is not None:
        entries = load_variants(variants).entries()
    if not entries or not seeds:
        raise TrainError(f"a comparison needs recipes and seeds, got {len(entries)} and {len(seeds)}")
    folder, report, shared = Path(out), progress or default_progress(), list(overrides)
    loaded = {entry.name: load_recipe(entry.recipe, [*entry.overrides, *shared]) for entry in entries}
    runs: dict[str, list[dict[str, Any]]] = {}
    results: list[Comparison] = []
    # Seed by seed, so that an unfinished comparison still compares all entries.
    for seed in seeds:
        for entry in entries:
            report.note(f"{entry.name}, seed {seed}")
            target = folder / f"{entry.name}-seed{seed}"
            changes = [*entry.overrides, *shared, f"seed={seed}"]
            fit(entry.recipe, out=target, data=data, resume=True, overrides=changes, progress=report)
            runs[target.name] = read_rows(target / "metrics.jsonl")
        results = [
            _summarize(folder, name, recipe.optimizer.rule, recipe.epochs, seeds[: seeds.index(seed) + 1])
            for name, recipe in loaded.items()
        ]
        _write(folder, results, runs)
    return results


def _summarize(folder: Path, name: str, rule: str, epochs: int, seeds: Sequence[int]) -> Comparison:
    trainings: list[dict[str, Any]] = []
    ends: list[dict[str, Any]] = []
    for seed in seeds:
        target = folder / f"{name}-seed{seed}"
        trainings.append(json.loads((target / "model.json").read_text(encoding="utf-8"))["training"])
        ends.append(read_rows(target / "metrics.jsonl")[-1])
    speeds = [end["images_per_second"] for end in ends]
    return Comparison(
        name,
        rule,
        list(seeds),
        epochs,
        [run["last"]["accuracy"] for run in trainings if run["selected_on"] == "validation"],
        [run["test"]["last"]["accuracy"] for run in trainings],
        [run["test"]["best"]["accuracy"] for run in trainings],
        [end["train_accuracy"] for end in ends],
        math.exp(statistics.fmean(map(math.log, speeds))),
    )


def _write(folder: Path, results: Sequence[Comparison], runs: dict[str, list[dict[str, Any]]]) -> None:
    write_text(folder / "comparison.json", json.dumps([asdict(result) for result in results], indent=2) + "\n")
    lines = [HEADER, ["---"] * len(HEADER), *(result.row() for result in results)]
    write_text(folder / "comparison.md", "".join("| " + " | ".join(cells) + " |\n" for cells in lines))
    plot_runs(folder / "comparison.png", runs, "comparison")
