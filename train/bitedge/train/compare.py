"""Compare recipes over several seeds: every run in its own folder, one table and one picture of all of them.

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

from bitedge.train.checkpoint import write_text
from bitedge.train.curves import plot_runs
from bitedge.train.errors import TrainError
from bitedge.train.metrics import read_rows
from bitedge.train.progress import Progress, default_progress
from bitedge.train.recipe import load_recipe
from bitedge.train.trainer import fit

SMALL = ("cifar10-small", "cifar10-small-bop", "cifar10-small-latent")


@dataclass(frozen=True)
class Comparison:
    """What one recipe reached: mean and sample deviation over its seeds, accuracies as shares."""

    recipe: str
    rule: str
    seeds: list[int]
    epochs: int
    test_last: list[float]
    test_best: list[float]
    train_last: list[float]
    images_per_second: float

    def row(self) -> list[str]:
        """Cells for a table: accuracies in percent, mean and deviation."""
        return [
            self.recipe,
            self.rule,
            str(len(self.seeds)),
            str(self.epochs),
            spread(self.test_last),
            spread(self.test_best),
            spread(self.train_last),
            f"{self.images_per_second:.0f}",
        ]


HEADER = ["recipe", "rule", "seeds", "epochs", "test last %", "test best %", "train last %", "images/s"]


def spread(shares: Sequence[float]) -> str:
    """Mean and sample deviation in percent; a single value has no deviation."""
    mean = 100 * statistics.fmean(shares)
    return f"{mean:.2f}" if len(shares) < 2 else f"{mean:.2f} ± {100 * statistics.stdev(shares):.2f}"


def compare(
    recipes: Sequence[str | Path] = SMALL,
    *,
    seeds: Sequence[int],
    out: Path | str,
    data: Path | str | None = None,
    overrides: Iterable[str] = (),
    progress: Progress | None = None,
) -> list[Comparison]:
    """Train every recipe with every seed into `out`, and write `comparison.json`, `.md` and `.png` there."""
    if not recipes or not seeds:
        raise TrainError(f"a comparison needs recipes and seeds, got {len(recipes)} and {len(seeds)}")
    folder, report, shared = Path(out), progress or default_progress(), list(overrides)
    loaded = {str(recipe): load_recipe(recipe, shared) for recipe in recipes}
    runs: dict[str, list[dict[str, Any]]] = {}
    results: list[Comparison] = []
    # Seed by seed, so that an unfinished comparison still compares all recipes.
    for seed in seeds:
        for source, recipe in loaded.items():
            report.note(f"{recipe.name}, seed {seed}")
            target = folder / f"{recipe.name}-seed{seed}"
            fit(source, out=target, data=data, resume=True, overrides=[*shared, f"seed={seed}"], progress=report)
            runs[target.name] = read_rows(target / "metrics.jsonl")
        results = [
            _summarize(folder, recipe.name, recipe.optimizer.rule, recipe.epochs, seeds[: seeds.index(seed) + 1])
            for recipe in loaded.values()
        ]
        _write(folder, results, runs)
    return results


def _summarize(folder: Path, name: str, rule: str, epochs: int, seeds: Sequence[int]) -> Comparison:
    tests: list[dict[str, Any]] = []
    ends: list[dict[str, Any]] = []
    for seed in seeds:
        target = folder / f"{name}-seed{seed}"
        tests.append(json.loads((target / "model.json").read_text(encoding="utf-8"))["training"]["test"])
        ends.append(read_rows(target / "metrics.jsonl")[-1])
    speeds = [end["images_per_second"] for end in ends]
    return Comparison(
        name,
        rule,
        list(seeds),
        epochs,
        [test["last"]["accuracy"] for test in tests],
        [test["best"]["accuracy"] for test in tests],
        [end["train_accuracy"] for end in ends],
        math.exp(statistics.fmean(map(math.log, speeds))),
    )


def _write(folder: Path, results: Sequence[Comparison], runs: dict[str, list[dict[str, Any]]]) -> None:
    write_text(folder / "comparison.json", json.dumps([asdict(result) for result in results], indent=2) + "\n")
    lines = [HEADER, ["---"] * len(HEADER), *(result.row() for result in results)]
    write_text(folder / "comparison.md", "".join("| " + " | ".join(cells) + " |\n" for cells in lines))
    plot_runs(folder / "comparison.png", runs, "comparison")
