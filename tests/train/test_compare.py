"""The comparison of recipes over seeds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.train.small_runs import SMALL

from bitedge.train.compare import HEADER, compare, spread
from bitedge.train.errors import TrainError
from bitedge.train.progress import Silent
from bitedge.train.recipe import RECIPES
from bitedge.train.run import load_run


@pytest.fixture
def recipes(tmp_path: Path) -> list[Path]:
    other = tmp_path / "other.toml"
    other.write_text((RECIPES / "digits.toml").read_text().replace('name = "digits"', 'name = "other"', 1))
    return [RECIPES / "digits.toml", other]


def test_every_recipe_with_every_seed(recipes: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    results = compare(recipes, seeds=[0, 1], out=out, overrides=[*SMALL, "epochs=1"], progress=Silent())
    assert [result.recipe for result in results] == ["digits", "other"]
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
