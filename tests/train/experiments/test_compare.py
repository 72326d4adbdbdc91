"""The comparison of recipes over seeds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.train.small_runs import SMALL

from bitedge.train.engine.progress import Silent
from bitedge.train.engine.run import load_run
from bitedge.train.errors import TrainError
from bitedge.train.experiments.compare import HEADER, VARIANTS, compare, load_variants, spread
from bitedge.train.recipes.recipe import RECIPES, load_recipe
from bitedge.train.recipes.schedule import LinearRecipe


@pytest.fixture
def recipes(tmp_path: Path) -> list[Path]:
    other = tmp_path / "other.toml"
    other.write_text((RECIPES / "digits.toml").read_text().replace('name = "digits"', 'name = "other"', 1))
    return [RECIPES / "digits.toml", other]


def test_every_recipe_with_every_seed(recipes: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    results = compare(recipes, seeds=[0, 1], out=out, overrides=[*SMALL, "epochs=1"], progress=Silent())
    assert [result.name for result in results] == ["digits", "other"]
    # The two recipes are the same but for their name, so the same seed gives the same accuracy.
    assert results[0].test_last == results[1].test_last
    for seed in (0, 1):
        run = load_run(out / f"digits-seed{seed}")
        assert (run.recipe.seed, run.training["test"]["last"]["accuracy"]) == (seed, results[0].test_last[seed])
    assert json.loads((out / "comparison.json").read_text())[0]["seeds"] == [0, 1]
    table = (out / "comparison.md").read_text().splitlines()
    assert table[0] == "| " + " | ".join(HEADER) + " |"
    assert len(table) == 4
    assert (out / "comparison.png").read_bytes().startswith(b"\x89PNG")

    before = (out / "digits-seed0" / "state.pt").stat().st_mtime_ns
    wider = compare(recipes[:1], seeds=[0, 1, 2], out=out, overrides=[*SMALL, "epochs=1"], progress=Silent())
    assert (out / "digits-seed0" / "state.pt").stat().st_mtime_ns == before
    assert wider[0].test_last[:2] == results[0].test_last
    assert len(wider[0].test_last) == 3


def test_mean_and_deviation() -> None:
    assert spread([0.5]) == "50.00"
    assert spread([0.5, 0.6, 0.7]) == "60.00 ± 10.00"


def test_nothing_to_compare(tmp_path: Path) -> None:
    with pytest.raises(TrainError, match="needs recipes and seeds, got 1 and 0"):
        compare(["digits"], seeds=[], out=tmp_path, progress=Silent())


@pytest.mark.parametrize("path", sorted(VARIANTS.glob("*.toml")), ids=lambda path: path.stem)
def test_shipped_variants_are_recipes_that_differ(path: Path) -> None:
    entries = load_variants(path).entries()
    recipes = [load_recipe(entry.recipe, entry.overrides) for entry in entries]
    assert path.stem == load_variants(path).name
    assert len({recipe.to_toml() for recipe in recipes}) == len(entries)


def test_variants_share_what_is_set_and_change_what_they_name(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'name = "mine"\ntitle = "two"\nrecipe = "digits"\n[set]\nbatch_size = 50\n[variants.plain]\n'
        '[variants.slower]\n"optimizer.lr" = { kind = "linear", start = 1e-3, end = 0.0 }\n'
    )
    out = tmp_path / "out"
    small = [change for change in SMALL if not change.startswith("batch_size")]
    results = compare(seeds=[3], out=out, variants=file, overrides=[*small, "epochs=1"], progress=Silent())
    plain, slower = (load_run(out / f"{name}-seed3") for name in ("plain", "slower"))
    assert [(result.name, result.seeds) for result in results] == [("plain", [3]), ("slower", [3])]
    assert results[1].held_out == [slower.training["last"]["accuracy"]]
    assert slower.recipe.optimizer.lr == LinearRecipe(kind="linear", start=1e-3, end=0.0)
    assert plain.recipe == slower.recipe.model_copy(update={"optimizer": plain.recipe.optimizer})
    assert (plain.recipe.batch_size, plain.recipe.seed) == (50, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "x"\ntitle = "x"\nrecipe = "digits"\n[variants]\n', "names no variant"),
        ('name = "x"\ntitle = "x"\nrecipe = "digits"\n[variants.a]\nepoch = 1\n', "unknown key 'epoch'"),
    ],
)
def test_wrong_variants_are_refused(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text(text)
    with pytest.raises(TrainError, match=message):
        compare(seeds=[0], out=tmp_path / "out", variants=file, progress=Silent())
    assert not (tmp_path / "out").exists()
