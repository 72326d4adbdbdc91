"""Callbacks of a run, and loggers as callbacks: TensorBoard, Weights & Biases, MLflow.

`execution.loggers = ["tensorboard"]` in a recipe, or `fit(..., callbacks=[TensorBoard(every=10)])` with options. A
callback of your own overrides what it needs of `Callback`. Only the first process calls them.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bitedge.train.errors import TrainError
from bitedge.train.recipes.recipe import Recipe
from bitedge.train.recipes.validation import plain

Figures = Mapping[str, Any]


class Callback:
    """Follows a run; every method does nothing unless it is overridden."""

    def start(self, recipe: Recipe, folder: Path, step: int) -> None:
        """Hear that a run begins, or goes on after `step` optimizer steps."""

    def step(self, step: int, figures: Figures) -> None:
        """Hear the loss and the hyper-parameters of an optimizer step."""

    def epoch(self, row: Figures) -> None:
        """Hear the row of an epoch, as in metrics.jsonl."""

    def end(self, training: Figures) -> None:
        """Hear the scores of a finished run, as in model.json."""

    def close(self) -> None:
        """Free what `start` took; called once, however the run ended."""


def numbers(figures: Figures) -> dict[str, float]:
    """Return the figures that a logger can plot."""
    kept = {name: value for name, value in figures.items() if isinstance(value, int | float)}
    return {name: float(value) for name, value in kept.items() if not isinstance(value, bool)}


def flat(recipe: Recipe) -> dict[str, Any]:
    """Return a recipe as one table with dotted keys."""
    rows: dict[str, Any] = {}

    def walk(table: Mapping[str, Any], prefix: str) -> None:
        for key, value in table.items():
            if isinstance(value, Mapping):
                walk(value, f"{prefix}{key}.")
            else:
                rows[prefix + key] = value

    walk(plain(recipe), "")
    return rows


class _Logger(Callback):
    """What the loggers share: one step in so many is sent, and every epoch."""

    package = ""
    install = ""

    def __init__(self, every: int = 1) -> None:
        if every < 1:
            raise TrainError(f"every must be at least 1, got {every}")
        self.every = every

    def load(self) -> Any:
        """Import the logger's package, or say how to install it."""
        try:
            return importlib.import_module(self.package)
        except ImportError as error:
            raise TrainError(f"{type(self).__name__} needs {self.package}: pip install {self.install}") from error

    def log(self, step: int, values: dict[str, float]) -> None:
        """Send values of an optimizer step."""

    def step(self, step: int, figures: Figures) -> None:
        """Send one step in `every`."""
        if step % self.every == 0:
            self.log(step, {f"per_step/{name}": value for name, value in numbers(figures).items()})

    def epoch(self, row: Figures) -> None:
        """Send the row of an epoch."""
        self.log(int(row["step"]), numbers(row))

    def end(self, training: Figures) -> None:
        """Send the test accuracies."""
        test = {f"test/{which}": float(score["accuracy"]) for which, score in training["test"].items()}
        self.log(self._last, test)

    _last = 0


class TensorBoard(_Logger):
    """Write scalars per step and per epoch to `events/` in the run folder."""

    package = "torch.utils.tensorboard"
    install = "tensorboard"

    def start(self, recipe: Recipe, folder: Path, step: int) -> None:
        """Open the event file; what a resumed run will write again is hidden."""
        del recipe
        self._writer = self.load().SummaryWriter(folder / "events", purge_step=step + 1)

    def log(self, step: int, values: dict[str, float]) -> None:
        """Add scalars."""
        self._last = step
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Finish the event file."""
        if hasattr(self, "_writer"):
            self._writer.close()


class WandB(_Logger):
    """Log to Weights & Biases; `options` go to `wandb.init`."""

    package = "wandb"
    install = "wandb"

    def __init__(self, every: int = 10, **options: Any) -> None:
        super().__init__(every)
        self.options = options

    def start(self, recipe: Recipe, folder: Path, step: int) -> None:
        """Start or resume the run, with the recipe as its configuration."""
        del step
        options = {"name": folder.name, "dir": str(folder), "config": flat(recipe), "resume": "allow", **self.options}
        self._run = self.load().init(**options)

    def log(self, step: int, values: dict[str, float]) -> None:
        """Log values."""
        self._last = step
        self._run.log(values, step=step)

    def close(self) -> None:
        """Finish the run."""
        if hasattr(self, "_run"):
            self._run.finish()


class MLflow(_Logger):
    """Log to MLflow, by its client: parameters of the recipe, metrics, and the files of the run at the end."""

    package = "mlflow"
    install = "mlflow-skinny"

    def __init__(self, every: int = 10, *, tracking_uri: str | None = None, experiment: str = "bitedge") -> None:
        super().__init__(every)
        self.tracking_uri, self.experiment = tracking_uri, experiment

    def start(self, recipe: Recipe, folder: Path, step: int) -> None:
        """Start a run, or go on with the one that the folder names."""
        mlflow = self.load()
        self._client = mlflow.MlflowClient(self.tracking_uri)
        self._folder = folder
        kept = folder / "mlflow-run"
        if step and kept.exists():
            self._run = kept.read_text(encoding="utf-8").strip()
            return
        found = self._client.get_experiment_by_name(self.experiment)
        experiment = self._client.create_experiment(self.experiment) if found is None else found.experiment_id
        self._run = self._client.create_run(experiment, run_name=folder.name).info.run_id
        kept.write_text(self._run, encoding="utf-8")
        for name, value in flat(recipe).items():
            self._client.log_param(self._run, name, value)

    def log(self, step: int, values: dict[str, float]) -> None:
        """Log metrics."""
        self._last = step
        for name, value in values.items():
            self._client.log_metric(self._run, name, value, step=step)

    def end(self, training: Figures) -> None:
        """Send the test accuracies and end the run."""
        super().end(training)
        self._client.set_terminated(self._run)


LOGGERS: dict[str, type[_Logger]] = {"tensorboard": TensorBoard, "wandb": WandB, "mlflow": MLflow}


def make_loggers(names: Iterable[str]) -> list[Callback]:
    """Return the loggers of these names, with their default options."""
    return [LOGGERS[name]() for name in names]
