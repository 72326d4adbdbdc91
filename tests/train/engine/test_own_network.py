"""A user's own network, data set, teacher and callbacks through `fit`: trained, killed, resumed, exported, verified."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.train.engine.own_network import RECIPE, Residual
from tests.train.small_runs import ROOT, SMALL, environment
from torch import nn

from bitedge.export import export, verify
from bitedge.runtime import Model
from bitedge.train import Callback, create_model, fit, list_models, load_dataset, load_run, register_model
from bitedge.train.engine.metrics import read_rows
from bitedge.train.engine.progress import Silent
from bitedge.train.errors import TrainError
from bitedge.train.models.registry import NETWORKS

SCRIPT = Path(__file__).with_name("own_network.py")


def run_script(out: Path, *words: str) -> int:
    command = [sys.executable, str(SCRIPT), str(out), *words]
    return subprocess.run(command, env=environment(), cwd=ROOT, stderr=subprocess.DEVNULL, check=False).returncode


def test_trains_resumes_after_kill_9_to_the_same_bits_and_exports(tmp_path: Path) -> None:
    assert run_script(tmp_path / "whole") == 0
    for steps in ("5", "6"):  # inside the first epoch, then inside the second
        assert run_script(tmp_path / "killed", steps) == -9
    assert run_script(tmp_path / "killed") == 0
    for name in ("last.safetensors", "best.safetensors", "recipe.toml"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    rows = [read_rows(tmp_path / which / "metrics.jsonl") for which in ("killed", "whole")]
    times = ("seconds", "images_per_second")
    first, second = ([{k: v for k, v in row.items() if k not in times} for row in some] for some in rows)
    assert first == second
    assert "flip_ratio" in first[-1]

    run = load_run(tmp_path / "whole", model=Residual())
    export(run.module, (1, 3, 32, 32), tmp_path / "out", labels=run.labels, preprocessing=run.preprocessing)
    images, labels = load_dataset("digits", validation=60).arrays("test")
    verdict = verify(run.module, tmp_path / "out", images[:64], labels=labels[:64], preprocessing=run.preprocessing)
    assert verdict.passed, verdict.breach
    assert {"core", "onnx"} <= {row.engine for row in verdict.engines if not row.skipped}
    answers = Model(tmp_path / "out" / "model.gguf").run(images).argmax(1)
    assert abs(float(np.mean(answers == labels)) - run.training["test"]["best"]["accuracy"]) < 0.01


class Listens(Callback):
    def __init__(self) -> None:
        self.heard: list[str] = []
        self.losses: list[float] = []

    def start(self, recipe: Any, folder: Path, step: int) -> None:
        self.heard.append(f"start {step}")

    def step(self, step: int, figures: Any) -> None:
        self.losses.append(figures["loss"])

    def epoch(self, row: Any) -> None:
        assert row["train_loss"] == pytest.approx(np.mean(self.losses[-6:]))
        self.heard.append(f"epoch {row['epoch']}")

    def end(self, training: Any) -> None:
        self.heard.append(f"end {training['epoch']}")

    def close(self) -> None:
        self.heard.append("close")


def test_a_module_a_data_set_a_teacher_and_callbacks_are_taken_as_objects(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, listener = Residual(), Listens()
    teacher = nn.Sequential(nn.Flatten(), nn.Linear(3072, 10))
    data = load_dataset("digits", validation=60)
    run = fit(
        RECIPE,
        out=tmp_path / "run",
        model=module,
        dataset=data,
        teacher=teacher,
        callbacks=[listener],
        overrides=["epochs=2"],
        progress=Silent(),
    )
    assert run.module is module
    assert listener.heard == ["start 0", "epoch 1", "epoch 2", "end 2", "close"]
    assert len(listener.losses) == 12
    assert {"recipe.toml", "curves.png", "state.pt"} <= {path.name for path in run.folder.iterdir()}
    about = json.loads((run.folder / "model.json").read_text())
    assert about["network"]["class"].endswith("own_network:Residual")
    assert about["data"]["name"] == "digits"
    with pytest.raises(TrainError, match="given as an object"):
        load_run(run.folder)
    again = load_run(run.folder, model=Residual())
    assert all(torch.equal(value, again.module.state_dict()[name]) for name, value in module.state_dict().items())


def test_a_network_by_its_path_is_found_again(tmp_path: Path) -> None:
    changes = [*SMALL[:3], *SMALL[5:], "network={name = 'tests.train.engine.own_network:Residual'}"]
    run = fit("digits", out=tmp_path / "run", overrides=[*changes, "network.arguments.width=4"], progress=Silent())
    assert json.loads((run.folder / "model.json").read_text())["network"]["arguments"] == {
        "num_classes": 10,
        "width": 4,
    }
    assert isinstance(load_run(run.folder).module, Residual)


def test_models_are_registered_listed_and_created() -> None:
    assert list_models("*real*") == ["birealnet18"]
    assert {"binarynet", "xnornet", "birealnet18"} <= set(list_models())
    register_model(Residual, name="own")
    try:
        assert create_model("own", num_classes=3, width=4)[-1].out_features == 3  # type: ignore[index]
        with pytest.raises(TrainError, match="registered already"):
            register_model(nn.Linear, name="own")
    finally:
        del NETWORKS["own"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("birealnet", "did you mean 'birealnet18'"),
        ("nowhere.models:Net", "cannot be imported"),
        ("tests.train.engine.own_network:Nothing", "cannot be imported"),
        ("tests.train.engine.own_network:RECIPE", "is a dict: expected a class or function"),
        ("builtins:dict", "gave a dict: expected a torch.nn.Module"),
    ],
)
def test_a_network_that_cannot_be_is_refused(name: str, message: str) -> None:
    with pytest.raises(TrainError, match=message):
        create_model(name)
