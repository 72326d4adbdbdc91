"""Loggers as callbacks: what reaches TensorBoard, MLflow and W&B, and what is said when one is not installed."""

from __future__ import annotations

import json
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


def test_wandb_keeps_the_recipe_and_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore

    monkeypatch.setenv("WANDB_SILENT", "true")
    rows = train(tmp_path / "run", WandB(every=1, mode="offline"))
    (kept,) = (tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb")
    store: Any = DataStore()
    history, config = [], {}
    store.open_for_scan(str(kept))
    while (data := store.scan_data()) is not None:
        record = Record.FromString(data)
        if record.HasField("run"):
            config = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.run.config.update}
        if record.HasField("history"):
            history.append({".".join(i.nested_key) or i.key: json.loads(i.value_json) for i in record.history.item})
    store.close()
    assert config["optimizer.rule"] == "bop2nd"
    assert [row["_step"] for row in history if "per_step/loss" in row] == list(range(1, 11))
    assert [row["accuracy"] for row in history if "accuracy" in row] == pytest.approx([r["accuracy"] for r in rows])
    assert sum("test/best" in row for row in history) == 1


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
