"""Sweeps: points, checks, and a real study on SQLite that is stopped and started again."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState
from tests.train.small_runs import SMALL

from bitedge.train.engine.progress import Lines, Silent
from bitedge.train.errors import TrainError
from bitedge.train.experiments import sweep as sweeping
from bitedge.train.experiments.sweep import SWEEPS, Sweep, load_sweep, overrides, points, run_sweep
from bitedge.train.experiments.sweep_report import along, study_table
from bitedge.train.recipes.recipe import load_recipe

SET = {key: float(value) if "." in value else int(value) for key, value in (item.split("=") for item in SMALL)}


def small_sweep(search: str = "grid", **changes: object) -> Sweep:
    fields: dict[str, object] = {
        "name": "small",
        "title": "a small sweep",
        "recipe": "digits",
        "search": search,
        "space": {"optimizer.sigma": [1e-3, 1e-2], "seed": [0, 1]},
        "set": {**SET, "epochs": 1},
    }
    result = Sweep(**{**fields, **changes})  # type: ignore[arg-type]
    result.check()
    return result


@pytest.mark.parametrize("path", sorted(SWEEPS.glob("*.toml")), ids=lambda path: path.stem)
def test_shipped_sweeps_name_recipes_that_take_their_values(path: Path) -> None:
    sweep = load_sweep(path.stem)
    recipe = load_recipe(sweep.recipe, overrides(sweep, {}))
    for values in points(sweep, recipe):
        load_recipe(sweep.recipe, overrides(sweep, values))


def test_the_papers_ablation_is_a_cross_of_13_runs() -> None:
    sweep = load_sweep("ablation")
    recipe = load_recipe(sweep.recipe, overrides(sweep, {}))
    assert recipe.epochs == 100
    plan = points(sweep, recipe)
    base = {"optimizer.gamma": 1e-7, "optimizer.sigma": 1e-3, "optimizer.tau": 1e-6}
    assert plan[0] == base
    assert len(plan) == 13
    assert all(sum(values[key] != base[key] for key in base) == 1 for values in plan[1:])
    assert {values["optimizer.gamma"] for values in plan} == {1e-9, 1e-8, 1e-7, 1e-6, 1e-5}


def test_grid_takes_every_combination() -> None:
    sweep = small_sweep()
    plan = points(sweep, load_recipe("digits"))
    assert [tuple(values.values()) for values in plan] == [(1e-3, 0), (1e-3, 1), (1e-2, 0), (1e-2, 1)]


def test_a_stopped_sweep_goes_on_with_what_is_left(tmp_path: Path) -> None:
    study = run_sweep(small_sweep(), out=tmp_path, limit=1, progress=Silent())
    assert [trial.state for trial in study.trials].count(TrialState.COMPLETE) == 1
    # A process that died in its second trial: it took the trial, made its folder, and is gone.
    dead = study.ask()
    dead.suggest_categorical("optimizer.sigma", [1e-3, 1e-2])
    dead.suggest_categorical("seed", [0, 1])

    study = run_sweep(small_sweep(), out=tmp_path, progress=Silent())
    finished = [trial for trial in study.trials if trial.state == TrialState.COMPLETE]
    assert len({tuple(trial.params.values()) for trial in finished}) == len(finished) == 4
    assert [trial.state for trial in study.trials].count(TrialState.FAIL) == 1
    assert len(list((tmp_path / "trials").iterdir())) == 4
    header, rows = study_table(study)
    assert header == ["trial", "optimizer.sigma", "seed", "accuracy", "test", "folder"]
    accuracies = [float(row[3]) for row in rows]
    assert accuracies == sorted(accuracies, reverse=True)
    with (tmp_path / "study.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 4
    assert (tmp_path / "study.md").read_text().count("\n| ") == 6
    assert (tmp_path / "study.png").read_bytes().startswith(b"\x89PNG")

    before = len(study.trials)
    assert len(run_sweep(small_sweep(), out=tmp_path, progress=Silent()).trials) == before


def test_a_search_draws_points_in_its_ranges(tmp_path: Path) -> None:
    space = {
        "optimizer.sigma": {"low": 1e-4, "high": 1e-2, "log": True},
        "network.arguments.width": {"low": 2, "high": 3},
    }
    study = run_sweep(small_sweep("random", space=space, trials=2), out=tmp_path, progress=Silent())
    assert len(study.trials) == 2
    for trial in study.trials:
        assert 1e-4 <= trial.params["optimizer.sigma"] <= 1e-2
        assert trial.params["network.arguments.width"] in (2, 3)


def test_a_trial_that_fails_does_not_end_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bitedge.train.engine.trainer import fit as plain

    def failing(recipe: str, **options: object) -> object:
        if "seed=1" in options["overrides"]:  # type: ignore[operator]
            raise TrainError("the loss is not finite")
        return plain(recipe, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(sweeping, "fit", failing)
    stream = io.StringIO()
    study = run_sweep(small_sweep(space={"seed": [0, 1]}), out=tmp_path, progress=Lines(stream))
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE, TrialState.FAIL]
    assert "trial 1 failed: the loss is not finite" in stream.getvalue()


def test_two_sweeps_do_not_share_a_folder(tmp_path: Path) -> None:
    with (
        sweeping._open_study(small_sweep(), tmp_path, None),
        pytest.raises(TrainError, match="another sweep is at work"),
        sweeping._open_study(small_sweep(), tmp_path, None),
    ):
        pass


def test_a_storage_url_holds_the_study(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    run_sweep(small_sweep(space={"seed": [0]}), out=tmp_path / "a", storage=url, progress=Silent())
    study = run_sweep(small_sweep(space={"seed": [0]}), out=tmp_path / "b", storage=url, progress=Silent())
    assert len(study.trials) == 1
    assert optuna.load_study(study_name="small", storage=url).best_trial.params == {"seed": 0}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"space": {}}, "space is empty"),
        ({"space": {"seed": []}}, "expected a list of values"),
        ({"space": {"seed": 3}}, "expected a list of values"),
        ({"space": {"seed": {"low": 0, "high": 3}}}, "a grid cannot enumerate"),
        ({"trials": 3}, "lists its own points"),
        ({"search": "tpe"}, "needs a number of trials"),
        ({"search": "tpe", "trials": 2, "space": {"seed": {"low": 0, "high": 3, "lag": True}}}, "no option 'lag'"),
    ],
)
def test_wrong_sweeps_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(TrainError, match=message):
        small_sweep(**changes)  # type: ignore[arg-type]


def test_wrong_keys_are_found_before_the_first_trial(tmp_path: Path) -> None:
    with pytest.raises(TrainError, match="did you mean 'sigma'"):
        run_sweep(small_sweep(space={"optimizer.sigm": [1.0]}), out=tmp_path / "run", progress=Silent())
    assert not (tmp_path / "run").exists()


def test_a_cross_needs_its_centre() -> None:
    sweep = small_sweep("cross", space={"optimizer.sigma": [0.5]})
    with pytest.raises(TrainError, match=r"own value 0\.01 among the values"):
        points(sweep, load_recipe("digits"))


def test_unknown_sweep_names_the_nearest() -> None:
    with pytest.raises(TrainError, match="unknown sweep 'ablaton': did you mean 'ablation'"):
        load_sweep("ablaton")


def test_the_picture_of_a_cross_shows_one_arm_in_each_panel() -> None:
    def trial(gamma: float, tau: float) -> optuna.trial.FrozenTrial:
        spread = optuna.distributions.FloatDistribution(0.0, 10.0)
        return optuna.trial.create_trial(
            params={"gamma": gamma, "tau": tau}, distributions={"gamma": spread, "tau": spread}, value=gamma * tau
        )

    cross = [trial(1, 1), trial(3, 1), trial(2, 1), trial(1, 5), trial(1, 0)]
    assert [t.params["gamma"] for t in along(cross, "gamma")] == [1, 2, 3]
    assert [t.params["tau"] for t in along(cross, "tau")] == [0, 1, 5]
