"""Loggers as callbacks: what reaches TensorBoard and MLflow, and what is said when one is not installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.train.small_runs import SMALL

from bitedge.train import Callback, MLflow, TensorBoard, WandB, fit, load_recipe
from bitedge.train.engine import callbacks as module
from bitedge.train.engine.callbacks import flat, numbers
from bitedge.train.engine.metrics import read_rows
from bitedge.train.engine.progress import Silent
from bitedge.train.errors import TrainError


def train(folder: Path, callback: Callback) -> list[dict[str, Any]]:
    fit("digits", out=folder, overrides=SMALL, progress=Silent(), callbacks=[callback])
    return read_rows(folder / "metrics.jsonl")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_has_every_step_and_epoch(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    fit("digits", out=tmp_path / "run", overrides=[*SMALL, 'execution.loggers=["tensorboard"]'], progress=Silent())
    rows = read_rows(tmp_path / "run" / "metrics.jsonl")
    events = EventAccumulator(str(tmp_path / "run" / "events"))
    events.Reload()
    assert [event.step for event in events.Scalars("per_step/loss")] == list(range(1, 11))
    accuracy = events.Scalars("accuracy")
    assert [event.step for event in accuracy] == [row["step"] for row in rows] == [5, 10]
    assert [event.value for event in accuracy] == pytest.approx([row["accuracy"] for row in rows])
    assert len(events.Scalars("test/best")) == 1


@pytest.mark.filterwarnings("ignore")
def test_mlflow_keeps_parameters_and_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlflow

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = f"file:{tmp_path / 'store'}"
    rows = train(tmp_path / "run", MLflow(every=1, tracking_uri=uri))
    client = mlflow.MlflowClient(uri)
    experiment = client.get_experiment_by_name("bitedge")
    assert experiment is not None
    (kept,) = client.search_runs([experiment.experiment_id])
    assert kept.info.status == "FINISHED"
    assert kept.data.params["optimizer.rule"] == "bop2nd"
    history = client.get_metric_history(kept.info.run_id, "per_step/loss")
    assert [metric.step for metric in history] == list(range(1, 11))
    assert kept.data.metrics["accuracy"] == pytest.approx(rows[-1]["accuracy"])
    assert (tmp_path / "run" / "mlflow-run").read_text() == kept.info.run_id


@pytest.mark.parametrize(
    ("logger", "advice"),
    [
        (TensorBoard(), "pip install tensorboard"),
        (WandB(), "pip install wandb"),
        (MLflow(), "pip install mlflow-skinny"),
    ],
)
def test_a_logger_that_is_not_installed_says_how(
    logger: Any, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(module.importlib, "import_module", missing)  # type: ignore[attr-defined]
    with pytest.raises(TrainError, match=advice):
        logger.start(load_recipe("digits"), tmp_path, 0)
    logger.close()


def test_only_numbers_are_plotted_and_recipes_are_flat() -> None:
    assert numbers({"loss": 1, "split": "test", "layers": {}, "on": True}) == {"loss": 1.0}
    table = flat(load_recipe("digits"))
    assert table["optimizer.gamma.end"] == 1e-4
    assert table["network.arguments.width"] == 32
    with pytest.raises(TrainError, match="every must be at least 1"):
        TensorBoard(every=0)
