"""Train a network from a recipe into a run folder.

bitedge train --list
bitedge train --recipe digits
bitedge train --recipe cifar10-small --data DIR --set epochs=3 --out runs/first
bitedge train --resume --out runs/first
torchrun --nproc-per-node 2 -m bitedge.cli train --recipe ... --data DIR --out DIR
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bitedge.cli.errors import CommandError
from bitedge.cli.output import emit, table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take a recipe, its data and where to write."""
    parser.add_argument("--recipe", metavar="NAME|FILE.toml", help="a shipped recipe, or your own file")
    parser.add_argument("--list", action="store_true", help="show the shipped recipes with their expected result")
    parser.add_argument("--data", type=Path, metavar="DIR", help="the folder of the data set")
    parser.add_argument("--out", type=Path, metavar="DIR", help="the run folder (default: runs/RECIPE)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change one value of the recipe"
    )
    parser.add_argument("--resume", action="store_true", help="go on with an interrupted run")
    parser.add_argument("--print-recipe", action="store_true", help="show the resolved recipe and stop")


def run(args: argparse.Namespace) -> int:
    """Train, list or show."""
    if args.list:
        return list_all(args)
    recipe = args.recipe
    if recipe is None and args.resume and args.out is not None:
        recipe = str(args.out / "recipe.toml")
    if recipe is None:
        raise CommandError("give --recipe NAME (see bitedge train --list), or --resume --out DIR")
    if args.print_recipe:
        return print_recipe(args, recipe)
    from bitedge.train.trainer import fit

    out = args.out or Path("runs") / Path(recipe).stem
    result = fit(recipe, out=out, data=args.data, resume=args.resume, overrides=args.set)
    test = result.training["test"]
    emit(
        args,
        {"run": str(out), "training": result.training},
        f"{out}: test accuracy {100 * test['best']['accuracy']:.2f} % (best), {100 * test['last']['accuracy']:.2f} % (last)",
    )
    return 0


def list_all(args: argparse.Namespace) -> int:
    """Show every shipped recipe."""
    from bitedge.train.recipe import list_recipes, load_recipe

    recipes = [load_recipe(name) for name in list_recipes()]
    rows = [(r.name, r.data.name, r.network.name, r.optimizer.rule, r.epochs, r.expected) for r in recipes]
    data = {"recipes": [{"name": r.name, "title": r.title, "expected": r.expected, "cost": r.cost} for r in recipes]}
    emit(args, data, table(("recipe", "data", "network", "rule", "epochs", "expected"), rows))
    return 0


def print_recipe(args: argparse.Namespace, recipe: str) -> int:
    """Show a recipe with all defaults and overrides."""
    from bitedge.train.recipe import load_recipe
    from bitedge.train.records import plain

    resolved = load_recipe(recipe, args.set)
    emit(args, plain(resolved), resolved.to_toml().rstrip())
    return 0
