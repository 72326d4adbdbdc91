"""Sweeps: many runs of one recipe over a grid or a search space, kept in an Optuna study.

A sweep is a TOML file: the recipe, what all trials share (`[set]`), and how each varied key varies (`[space]`): a list
of values, or a range `{ low = 1e-8, high = 1e-4, log = true }`. Every trial is an ordinary run folder under `trials/`.
The study is an SQLite file inside the sweep's folder unless a storage URL is given; machines that share a storage (and
a name) share the study. Starting again goes on with what is left, and a run that was cut short is resumed.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.trial import FrozenTrial, TrialState
from pydantic import Field

from bitedge.train.engine.progress import Progress, default_progress
from bitedge.train.engine.trainer import fit
from bitedge.train.errors import TrainError
from bitedge.train.experiments.sweep_report import write_report
from bitedge.train.recipes.recipe import Recipe, load_recipe, read_table
from bitedge.train.recipes.validation import Record, plain, read_model

SWEEPS = Path(__file__).parent / "sweeps"
HEARTBEAT_SECONDS = 60


class Sweep(Record):
    """What to vary, how to search, and what every trial shares.

    `grid` takes every combination of values; `cross` varies one key at a time around the recipe's own values, which is
    the paper's ablation study; `tpe` and `random` draw `trials` points. Trials are ranked by the accuracy of the last
    epoch on the validation split (on the test split where a recipe holds nothing out, as the paper does).
    """

    name: str
    title: str
    recipe: str
    search: Literal["grid", "cross", "tpe", "random"]
    space: dict[str, Any]
    expected: str = ""
    trials: int = 0
    seed: int = 0
    set: dict[str, Any] = Field(default_factory=dict)

    def check(self) -> None:
        """Refuse a space that cannot be searched, before the first trial."""
        if not self.space:
            raise TrainError("space is empty: name at least one key to vary")
        listed = self.search in ("grid", "cross")
        for key, axis in self.space.items():
            if isinstance(axis, list) and axis:
                continue
            if isinstance(axis, list) or not isinstance(axis, Mapping) or not {"low", "high"} <= set(axis):
                raise TrainError(f"space.{key} = {axis!r}: expected a list of values or {{ low = ..., high = ... }}")
            if listed:
                raise TrainError(f"space.{key} is a range, which a {self.search} cannot enumerate: list its values")
            if unknown := sorted(set(axis) - {"low", "high", "log"}):
                raise TrainError(f"space.{key} has no option {unknown[0]!r}: a range takes low, high and log")
        if listed == bool(self.trials):
            advice = "lists its own points: remove it" if listed else "needs a number of trials"
            raise TrainError(f"trials = {self.trials}: a {self.search} search {advice}")


def load_sweep(source: str | Path) -> Sweep:
    """Read a shipped sweep by name, or a TOML file."""
    sweep = read_model(Sweep, read_table(source, SWEEPS, "sweep"))
    sweep.check()
    return sweep


def overrides(sweep: Sweep, values: Mapping[str, Any]) -> list[str]:
    """What a point of the space sets in the recipe, as `key=value` pairs."""
    return [f"{key}={json.dumps(value)}" for key, value in {**sweep.set, **values}.items()]


def points(sweep: Sweep, recipe: Recipe) -> list[dict[str, Any]]:
    """Every point of a grid or of a cross; nothing for searches that draw their points."""
    if sweep.search == "grid":
        return [dict(zip(sweep.space, values, strict=True)) for values in itertools.product(*sweep.space.values())]
    if sweep.search != "cross":
        return []
    centre = {key: _own_value(recipe, key) for key in sweep.space}
    for key, value in centre.items():
        if value not in sweep.space[key]:
            raise TrainError(f"space.{key}: a cross needs the recipe's own value {value!r} among the values")
    arms = [{**centre, key: value} for key, axis in sweep.space.items() for value in axis if value != centre[key]]
    return [centre, *arms]


def _own_value(recipe: Recipe, key: str) -> Any:
    value: Any = plain(recipe)
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def run_sweep(
    source: str | Path | Sweep,
    *,
    out: Path | str,
    data: Path | str | None = None,
    storage: str | None = None,
    limit: int | None = None,
    progress: Progress | None = None,
) -> optuna.Study:
    """Run the trials that are left (at most `limit` of them), then write the table and the plot of the study."""
    sweep = source if isinstance(source, Sweep) else load_sweep(source)
    recipe = load_recipe(sweep.recipe, overrides(sweep, {}))
    planned = points(sweep, recipe)
    for values in planned or [_corner(sweep)]:
        load_recipe(sweep.recipe, overrides(sweep, values))
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    report = progress or default_progress()
    with _open_study(sweep, folder, storage) as study:
        for values in planned:
            study.enqueue_trial(values, skip_if_exists=True)
        objective = _objective(sweep, folder, data, report)
        count = 0
        while _left(study, sweep) and (limit is None or count < limit):
            study.optimize(objective, n_trials=1, catch=(TrainError,))
            count += 1
            write_report(study, sweep.title, folder)
        write_report(study, sweep.title, folder)
    return study


def _corner(sweep: Sweep) -> dict[str, Any]:
    return {key: axis[0] if isinstance(axis, list) else axis["low"] for key, axis in sweep.space.items()}


def _left(study: optuna.Study, sweep: Sweep) -> bool:
    trials = study.get_trials(deepcopy=False)
    if any(trial.state == TrialState.WAITING for trial in trials):
        return True
    # A trial that died and its second attempt are one point.
    return len({json.dumps(trial.params, sort_keys=True) for trial in trials}) < sweep.trials


def _objective(
    sweep: Sweep, folder: Path, data: Path | str | None, report: Progress
) -> Callable[[optuna.Trial], float]:
    def objective(trial: optuna.Trial) -> float:
        values = {key: _suggest(trial, key, axis) for key, axis in sweep.space.items()}
        digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]
        report.note(f"trial {trial.number}: " + ", ".join(f"{key} = {value}" for key, value in values.items()))
        trial.set_user_attr("folder", f"trials/{digest}")
        try:
            run = fit(
                sweep.recipe,
                out=folder / "trials" / digest,
                data=data,
                resume=True,
                overrides=overrides(sweep, values),
                progress=report,
            )
        except TrainError as error:
            report.note(f"trial {trial.number} failed: {error}")
            raise
        trial.set_user_attr("test", run.training["test"]["last"]["accuracy"])
        trial.set_user_attr("best", run.training["best"]["accuracy"])
        return float(run.training["last"]["accuracy"])

    return objective


def _suggest(trial: optuna.Trial, key: str, axis: Any) -> Any:
    if isinstance(axis, list):
        return trial.suggest_categorical(key, axis)
    if isinstance(axis["low"], int) and isinstance(axis["high"], int):
        return trial.suggest_int(key, axis["low"], axis["high"], log=axis.get("log", False))
    return trial.suggest_float(key, axis["low"], axis["high"], log=axis.get("log", False))


@contextmanager
def _open_study(sweep: Sweep, folder: Path, url: str | None) -> Iterator[optuna.Study]:
    """Open the study; trials which a dead process left behind are queued again.

    In its own SQLite file the sweep is alone (a lock says so), hence whatever is still running there is dead. In a
    shared storage Optuna's heartbeat tells.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # what fails is said below, in one line
    samplers = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
    sampler = samplers.get(sweep.search, optuna.samplers.RandomSampler)(seed=sweep.seed)
    if url is not None:
        yield _study(sweep, sampler, _shared_storage(url))
        return
    with (folder / "sweep.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise TrainError(
                f"another sweep is at work in {folder}: wait for it, or share a study with --storage"
            ) from None
        study = _study(sweep, sampler, optuna.storages.RDBStorage(f"sqlite:///{folder / 'study.db'}"))
        for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            _queue_again(study, trial)
        yield study


def _shared_storage(url: str) -> optuna.storages.RDBStorage:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # heartbeats, in Optuna since 2.5
        retry = optuna.storages.RetryHeartbeatStaleTrialCallback()
        return optuna.storages.RDBStorage(
            url, heartbeat_interval=HEARTBEAT_SECONDS, heartbeat_stale_trial_callback=retry
        )


def _study(sweep: Sweep, sampler: optuna.samplers.BaseSampler, storage: optuna.storages.RDBStorage) -> optuna.Study:
    return optuna.create_study(
        storage=storage, sampler=sampler, study_name=sweep.name, direction="maximize", load_if_exists=True
    )


def _queue_again(study: optuna.Study, trial: FrozenTrial) -> None:
    study.tell(trial.number, state=TrialState.FAIL)
    study.enqueue_trial(trial.params)
