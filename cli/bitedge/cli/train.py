"""Train a network from a recipe into a run folder; search over recipes; compare them.

bitedge train --list
bitedge train --recipe digits
bitedge train --recipe cifar10-small --data DIR --set epochs=3 --out runs/first
bitedge train --resume --out runs/first
bitedge train sweep ablation --data DIR --out runs/ablation
bitedge train compare cifar10-small cifar10-small-bop --data DIR --seeds 0,1 --out runs/comparison
bitedge train compare --variants beyond --data DIR --seeds 0,1 --out runs/beyond
torchrun --nproc-per-node 2 -m bitedge.cli train --recipe cifar10-small --data DIR --out runs/first
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
from pathlib import Path
from typing import Any

from bitedge.cli.errors import CommandError
from bitedge.cli.output import emit, table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take a recipe, its data and where to write; or an action of many runs."""
    parser.add_argument("action", nargs="?", metavar="sweep|compare", help="many runs instead of one")
    parser.add_argument("names", nargs="*", metavar="NAME", help="the sweep, or the recipes to compare")
    parser.add_argument("--recipe", metavar="NAME|FILE.toml", help="a shipped recipe, or your own file")
    parser.add_argument("--list", action="store_true", help="show the shipped recipes with their expected result")
    parser.add_argument("--data", type=Path, metavar="DIR", help="the folder of the data set")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where to write (default: runs/NAME)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a value of the recipe")
    parser.add_argument("--resume", action="store_true", help="go on with an interrupted run")
    parser.add_argument("--print-recipe", action="store_true", help="show the resolved recipe and stop")
    parser.add_argument("--seeds", default="0,1", metavar="A,B", help="compare: the seeds (default: 0,1)")
    parser.add_argument("--variants", metavar="NAME|FILE.toml", help="compare: variants of one recipe")
    parser.add_argument("--storage", metavar="URL", help="sweep: Optuna storage shared by several machines")
    parser.add_argument("--trials", type=int, metavar="N", help="sweep: stop after so many trials, go on later")


def run(args: argparse.Namespace) -> int:
    """Train, list, show, sweep or compare."""
    if args.list:
        return list_all(args)
    actions = {"sweep": sweep, "compare": compare}
    if args.action is not None:
        if args.action not in actions:
            close = difflib.get_close_matches(args.action, actions, n=1)
            advice = f"did you mean {close[0]!r}?" if close else f"give --recipe {args.action} to train by a recipe"
            raise CommandError(f"there is no action {args.action!r}: {advice}")
        return actions[args.action](args)
    recipe = args.recipe
    if recipe is None and args.resume and args.out is not None:
        recipe = str(args.out / "recipe.toml")
    if recipe is None:
        raise CommandError("give --recipe NAME (see bitedge train --list), or --resume --out DIR")
    return print_recipe(args, recipe) if args.print_recipe else train(args, recipe)


def train(args: argparse.Namespace, recipe: str) -> int:
    """Make or continue one run."""
    from bitedge.train.engine.trainer import fit

    out = args.out or Path("runs") / Path(recipe).stem
    data = args.data or (recorded_data(out) if args.resume else None)
    result = fit(recipe, out=out, data=data, resume=args.resume, overrides=args.set)
    if os.environ.get("RANK", "0") != "0":
        return 0
    test = result.training["test"]
    best, last = (f"{100 * test[which]['accuracy']:.2f} %" for which in ("best", "last"))
    text = f"{out}: test accuracy {best} (best epoch), {last} (last epoch); next: bitedge export {out}"
    emit(args, {"run": str(out), "training": result.training}, text)
    return 0


def recorded_data(out: Path) -> Path | None:
    """The folder that the run to resume read its data from, where it got far enough to say so."""
    try:
        root = json.loads((out / "model.json").read_text(encoding="utf-8"))["data"]["root"]
    except (OSError, ValueError, KeyError):
        return None
    return None if root is None else Path(root)


def list_all(args: argparse.Namespace) -> int:
    """Show every shipped recipe, sweep and set of variants."""
    from bitedge.train.experiments.compare import VARIANTS, load_variants
    from bitedge.train.experiments.sweep import SWEEPS, load_sweep
    from bitedge.train.recipes.recipe import list_recipes, load_recipe

    recipes = [load_recipe(name) for name in list_recipes()]
    sweeps = [load_sweep(path) for path in sorted(SWEEPS.glob("*.toml"))]
    variants = [load_variants(path) for path in sorted(VARIANTS.glob("*.toml"))]
    rows = [(r.name, r.data.name, r.network.name, r.optimizer.rule, r.epochs, r.expected) for r in recipes]
    kinds = [(s.name, s.recipe, s.search, s.expected) for s in sweeps]
    data: dict[str, Any] = {
        "recipes": [{"name": r.name, "title": r.title, "expected": r.expected, "cost": r.cost} for r in recipes],
        "sweeps": [{"name": s.name, "title": s.title, "expected": s.expected} for s in sweeps],
        "variants": [{"name": v.name, "title": v.title, "expected": v.expected} for v in variants],
    }
    tables = (
        table(("recipe", "data", "network", "rule", "epochs", "expected"), rows),
        table(("sweep", "recipe", "search", "expected"), kinds),
        table(("variants", "recipe", "expected"), [(v.name, v.recipe, v.expected) for v in variants]),
    )
    emit(args, data, "\n\n".join(tables))
    return 0


def print_recipe(args: argparse.Namespace, recipe: str) -> int:
    """Show a recipe with all defaults and overrides."""
    from bitedge.train.recipes.recipe import load_recipe
    from bitedge.train.recipes.validation import plain

    resolved = load_recipe(recipe, args.set)
    emit(args, plain(resolved), resolved.to_toml().rstrip())
    return 0


def sweep(args: argparse.Namespace) -> int:
    """Run what is left of a sweep and show the study."""
    from bitedge.train.experiments.sweep import run_sweep
    from bitedge.train.experiments.sweep_report import study_table

    if len(args.names) != 1:
        raise CommandError("give one sweep: bitedge train sweep NAME|FILE.toml --out DIR")
    if args.set:
        raise CommandError("a sweep keeps its values in its file: put them under [set] there instead of --set")
    out = args.out or Path("runs") / Path(args.names[0]).stem
    study = run_sweep(args.names[0], out=out, data=args.data, storage=args.storage, limit=args.trials)
    header, rows = study_table(study)
    if not rows:
        raise CommandError(f"no trial of this sweep finished: the lines above say why, the runs are in {out}/trials")
    data = {"folder": str(out), "trials": [dict(zip(header, row, strict=True)) for row in rows]}
    emit(args, data, table(header, rows) + f"\n\n{out}: study.csv, study.md, study.png")
    return 0


def compare(args: argparse.Namespace) -> int:
    """Train recipes with several seeds and show them side by side."""
    from bitedge.train.experiments.compare import HEADER, SMALL
    from bitedge.train.experiments.compare import compare as run_comparison

    try:
        seeds = [int(seed) for seed in args.seeds.split(",")]
    except ValueError:
        raise CommandError(f"--seeds {args.seeds}: expected whole numbers with commas, as in 0,1,2") from None
    if args.variants and args.names:
        raise CommandError(f"give recipes to compare ({' '.join(args.names)}) or --variants, not both")
    out = args.out or Path("runs") / (Path(args.variants).stem if args.variants else "comparison")
    results = run_comparison(
        args.names or SMALL, seeds=seeds, out=out, variants=args.variants, data=args.data, overrides=args.set
    )
    data = {"folder": str(out), "rows": [dict(zip(HEADER, result.row(), strict=True)) for result in results]}
    text = table(HEADER, [result.row() for result in results])
    emit(args, data, f"{text}\n\n{out}: comparison.md, comparison.json, comparison.png")
    return 0
