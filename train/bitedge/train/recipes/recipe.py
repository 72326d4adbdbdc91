"""Recipes: one TOML file says everything that decides a training run, and is kept with its result.

`load_recipe("digits")` reads a shipped recipe, `load_recipe("mine.toml")` a file; overrides are dotted
`key=value` pairs as given to `bitedge train --set`. The schema is in `schema.py`; a key that is not in it, a value of
the wrong type or out of range is refused before anything runs.
"""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bitedge.train.errors import TrainError
from bitedge.train.recipes.schema import MODELS, DataRecipe, Execution, LossRecipe, NetworkRecipe, Recipe
from bitedge.train.recipes.validation import nearest, plain, read_model

RECIPES = Path(__file__).parent

__all__ = [
    "RECIPES",
    "DataRecipe",
    "Execution",
    "LossRecipe",
    "NetworkRecipe",
    "Recipe",
    "apply_override",
    "list_recipes",
    "load_recipe",
    "read_table",
]


def list_recipes() -> list[str]:
    """Names of the shipped recipes."""
    return sorted(path.stem for path in RECIPES.glob("*.toml"))


def load_recipe(source: str | Path | Recipe | Mapping[str, Any], overrides: Iterable[str] = ()) -> Recipe:
    """Read a shipped recipe by name, a TOML file by path, or a table; apply `key=value` overrides, and check it."""
    if isinstance(source, Recipe):
        table = plain(source)
    else:
        table = copy.deepcopy(dict(source)) if isinstance(source, Mapping) else read_table(source)
    for override in overrides:
        apply_override(table, override)
    return read_model(Recipe, table, MODELS)


def read_table(source: str | Path, folder: Path = RECIPES, what: str = "recipe") -> dict[str, Any]:
    """Read the TOML table of a shipped name or of a file."""
    path = Path(source)
    if path.suffix != ".toml":
        known = [found.stem for found in folder.glob("*.toml")]
        if str(source) not in known:
            raise TrainError(f"unknown {what} {str(source)!r}: {nearest(str(source), known)} (or give a .toml file)")
        path = folder / f"{source}.toml"
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TrainError(f"cannot read {what} {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TrainError(f"{path} is not valid TOML: {error}") from error


def apply_override(table: dict[str, Any], override: str) -> None:
    """Set one dotted key; the value is read as TOML, and as a plain string where that fails."""
    key, equals, text = override.partition("=")
    path = [part.strip() for part in key.split(".")]
    if not equals or not all(path):
        raise TrainError(f"--set {override!r}: expected key=value, as in --set epochs=3")
    try:
        value = tomllib.loads(f"value = {text.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    for part in path[:-1]:
        inner = table.setdefault(part, {})
        if not isinstance(inner, dict):
            raise TrainError(f"--set {override!r}: {part!r} is the single value {inner!r}, not a table")
        table = inner
    table[path[-1]] = value
