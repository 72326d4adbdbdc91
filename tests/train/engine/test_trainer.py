"""The trainer: the run folder, determinism, learning, and what stops it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.train.small_runs import SMALL

from bitedge.train.engine.checkpoint import load_state
from bitedge.train.engine.execution import ParityWarning
from bitedge.train.engine.metrics import read_rows
from bitedge.train.engine.optimization import Optimization
from bitedge.train.engine.progress import Lines, Silent
from bitedge.train.engine.run import Run, load_run
from bitedge.train.engine.trainer import fit
from bitedge.train.errors import TrainError
from bitedge.train.nn.parameter import is_binary

FILES = [
    *("recipe.toml", "model.json", "environment.json", "state.pt"),
    *("best.safetensors", "last.safetensors", "metrics.csv", "metrics.jsonl", "curves.png"),
]


def train(folder: Path, *changes: str, **options: Any) -> Run:
    return fit("digits", out=folder, overrides=[*SMALL, *changes], progress=Silent(), **options)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tmp_path_factory.mktemp("runs") / "small")


def weights(run: Run) -> dict[str, torch.Tensor]:
    return run.module.state_dict()


def test_run_folder_is_complete(finished: Run) -> None:
    assert {path.name for path in finished.folder.iterdir()} - {"events"} == set(FILES)
    assert (finished.folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    about = json.loads((finished.folder / "environment.json").read_text())
    assert about["torch"] == torch.__version__
    assert about["processes"] == 1


def test_metrics_have_one_row_per_epoch_in_both_files(finished: Run) -> None:
    rows = read_rows(finished.folder / "metrics.jsonl")
    table = list(csv.DictReader(io.StringIO((finished.folder / "metrics.csv").read_text())))
    assert [row["epoch"] for row in rows] == [1, 2]
    assert [int(row["epoch"]) for row in table] == [1, 2]
    for row, cells in zip(rows, table, strict=True):
        assert float(cells["train_loss"]) == row["train_loss"]
        assert row["split"] == "validation"
        assert 0 <= row["within_tau"] <= 1
        assert set(row["layers"]) == {name for name, p in finished.module.named_parameters() if is_binary(p)}
    gammas = [row["gamma"] for row in rows]
    assert 1e-2 > gammas[0] > gammas[1] > 1e-4


def test_binary_weights_stay_exactly_binary(finished: Run) -> None:
    binary = [p for p in finished.module.parameters() if is_binary(p)]
    assert len(binary) == 9
    assert all(bool((p.abs() == 1).all()) for p in binary)


def test_state_is_plain_data(finished: Run) -> None:
    state = load_state(finished.folder / "state.pt")
    assert (state["epoch"], state["step"]) == (2, 0)
    last = weights(load_run(finished.folder, checkpoint="last"))
    assert all(torch.equal(value, last[name]) for name, value in state["module"].items())


def test_same_seed_gives_the_same_bits_and_another_seed_does_not(finished: Run, tmp_path: Path) -> None:
    again, other = train(tmp_path / "again"), train(tmp_path / "other", "seed=1")
    assert all(torch.equal(value, weights(again)[name]) for name, value in weights(finished).items())
    assert not torch.equal(weights(finished)["conv2.weight"], weights(other)["conv2.weight"])


def test_global_random_state_of_the_caller_does_not_matter(finished: Run, tmp_path: Path) -> None:
    torch.manual_seed(99)
    np.random.seed(99)
    again = train(tmp_path / "again")
    assert all(torch.equal(value, weights(again)[name]) for name, value in weights(finished).items())


@pytest.mark.parametrize("changes", [("optimizer.rule=latent",), ("optimizer.rule=bop", "optimizer.tau=1e-8")])
def test_baselines_train_in_the_same_loop(changes: tuple[str, ...], tmp_path: Path) -> None:
    table = (Path(__file__).parents[3] / "train/bitedge/train/recipes/digits.toml").read_text().splitlines()
    dropped = ("mode", "sigma", "threshold") if "bop" in changes[0] else ("mode", "sigma", "gamma", "tau", "threshold")
    recipe = tmp_path / "baseline.toml"
    recipe.write_text("\n".join(line for line in table if not line.startswith(dropped)))
    run = fit(recipe, out=tmp_path / "run", overrides=[*SMALL, *changes], progress=Silent())
    latent = "latent" in changes[0]
    assert any(is_binary(p) for p in run.module.parameters()) is not latent
    assert ("flip_ratio" in read_rows(run.folder / "metrics.jsonl")[-1]) is not latent


def test_rule_can_switch_in_the_middle(tmp_path: Path) -> None:
    switch = ("optimizer.switch.epoch=1", "optimizer.switch.gamma=1e-3", "optimizer.switch.tau=1e-6")
    run = train(tmp_path / "run", *switch)
    state = load_state(run.folder / "state.pt")
    assert state["optimization"]["optimizer"]["param_groups"][0]["rule"] == "bop"
    assert read_rows(run.folder / "metrics.jsonl")[-1]["gamma"] == 1e-3


def test_a_loss_that_is_not_finite_stops_and_keeps_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Optimization.backward
    calls = 0

    def poisoned(self: Optimization, loss: torch.Tensor) -> None:
        nonlocal calls
        calls += 1
        plain(self, loss)
        if calls == 7:  # the second step of the second epoch leaves a broken norm behind
            with torch.no_grad():
                self.optimizer.param_groups[-1]["params"][-1].fill_(float("nan"))

    monkeypatch.setattr(Optimization, "backward", poisoned)
    with pytest.raises(TrainError, match=r"loss is not finite at epoch 2, step 3; the checkpoint of epoch 1 is kept"):
        train(tmp_path / "run")
    state = load_state(tmp_path / "run" / "state.pt")
    assert state["epoch"] == 1
    assert all(bool(torch.isfinite(value).all()) for value in state["module"].values())
    monkeypatch.undo()
    resumed = train(tmp_path / "run", resume=True)
    clean = train(tmp_path / "clean")
    assert all(torch.equal(value, weights(clean)[name]) for name, value in weights(resumed).items())


def test_half_precision_warns_about_parity(tmp_path: Path) -> None:
    with pytest.warns(ParityWarning, match="exactly only up to 256"):
        run = train(tmp_path / "run", "execution.precision=bf16", "epochs=1")
    assert all(p.dtype == torch.float32 for p in run.module.parameters())


def test_layout_does_not_change_the_forward_pass(finished: Run, tmp_path: Path) -> None:
    run = train(tmp_path / "run", "execution.channels_last=false", "epochs=1")
    rows = read_rows(run.folder / "metrics.jsonl")
    assert rows[0]["train_loss"] == pytest.approx(
        read_rows(finished.folder / "metrics.jsonl")[0]["train_loss"], abs=0.2
    )


def test_process_settings_are_put_back(tmp_path: Path) -> None:
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    train(tmp_path / "run", "epochs=1")
    assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == (threads, deterministic)


def test_an_existing_run_is_not_overwritten(finished: Run) -> None:
    with pytest.raises(TrainError, match="holds a run already: continue it with --resume"):
        train(finished.folder)


def test_out_must_be_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TrainError, match="is a file: give a folder"):
        train(tmp_path / "file")


def test_a_set_on_disk_needs_its_folder(tmp_path: Path) -> None:
    with pytest.raises(TrainError, match="give --data DIR"):
        fit("cifar10-small", out=tmp_path / "run", progress=Silent())


def test_lines_are_printed_where_there_is_no_terminal(tmp_path: Path) -> None:
    stream = io.StringIO()
    fit("digits", out=tmp_path / "run", overrides=SMALL, progress=Lines(stream))
    lines = stream.getvalue().splitlines()
    assert [line.split()[1] for line in lines if line.startswith("epoch")] == ["1/2", "2/2"]
    assert lines[-1].startswith("test accuracy")
    assert "\r" not in stream.getvalue()
