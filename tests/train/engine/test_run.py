"""Reading a run back: the network, its images, and damaged folders."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.train.small_runs import SMALL

from bitedge.train.data.preprocessing import Normalizer
from bitedge.train.engine.progress import Silent
from bitedge.train.engine.run import Run, load_run
from bitedge.train.engine.trainer import fit
from bitedge.train.errors import TrainError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("runs") / "small"
    fit("digits", out=target, overrides=[*SMALL, "epochs=3"], progress=Silent())
    return target


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def test_a_run_knows_its_network_and_images(folder: Path) -> None:
    run = load_run(folder)
    assert not run.module.training
    assert run.labels == [str(digit) for digit in range(10)]
    assert run.preprocessing["size"] == [32, 32]
    assert (run.training["recipe"], run.training["epochs"], run.recipe.name) == ("digits", 3, "digits")
    images, labels = run.evaluation()
    assert images.shape == (360, 32, 32, 3)
    assert images.dtype == np.uint8
    assert labels.shape == (360,)
    assert labels.dtype == np.int64
    few, _ = run.evaluation(limit=12, split="validation")
    assert few.shape == (12, 32, 32, 3)


@pytest.mark.parametrize("checkpoint", ["best", "last"])
def test_the_recorded_accuracy_is_that_of_the_weights(folder: Path, checkpoint: str) -> None:
    run: Run = load_run(folder, checkpoint=checkpoint)  # type: ignore[arg-type]
    images, labels = run.evaluation()
    normalize = Normalizer(run.preprocessing, torch.device("cpu"))  # type: ignore[arg-type]
    with torch.inference_mode():
        answers = run.module(normalize(torch.from_numpy(images))).argmax(1).numpy()
    assert float((answers == labels).mean()) == pytest.approx(run.training["test"][checkpoint]["accuracy"])


def test_the_best_epoch_is_the_best_of_the_log(folder: Path) -> None:
    run = load_run(folder)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    best = max(rows, key=lambda row: (row["accuracy"], -row["loss"]))
    assert run.training["best"]["epoch"] == best["epoch"]
    assert run.training["best"]["accuracy"] == best["accuracy"]


def test_not_a_run_folder(tmp_path: Path) -> None:
    with pytest.raises(TrainError, match=r"is not a run folder: cannot read model\.json"):
        load_run(tmp_path)


def test_unknown_checkpoint(folder: Path) -> None:
    with pytest.raises(TrainError, match="checkpoint must be 'best' or 'last'"):
        load_run(folder, checkpoint="first")  # type: ignore[arg-type]


def test_damaged_description(copy: Path) -> None:
    (copy / "model.json").write_text("{}")
    with pytest.raises(TrainError, match=r"model\.json is damaged"):
        load_run(copy)


def test_damaged_weights(copy: Path) -> None:
    path = copy / "best.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(TrainError, match="cannot read the weights"):
        load_run(copy)


def test_weights_of_another_network(copy: Path) -> None:
    about = json.loads((copy / "model.json").read_text())
    about["network"]["arguments"]["width"] = 8
    (copy / "model.json").write_text(json.dumps(about))
    with pytest.raises(TrainError, match="does not hold this network's weights"):
        load_run(copy)


def test_weights_that_are_not_binary_are_refused(copy: Path) -> None:
    from safetensors.torch import load_file, save_file

    state = load_file(copy / "best.safetensors")
    state["conv2.weight"] *= 0.5
    save_file(state, copy / "best.safetensors")
    with pytest.raises(TrainError, match="exactly ±1"):
        load_run(copy)
