"""A run that is killed at any moment and resumed ends exactly like one that was left alone."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from tests.train.small_runs import SMALL, environment

from bitedge.train.engine.checkpoint import load_state, save_state, write_bytes
from bitedge.train.engine.metrics import MetricsLog, read_rows
from bitedge.train.engine.progress import Lines, Progress, Silent
from bitedge.train.engine.trainer import fit
from bitedge.train.errors import TrainError

CHANGES = [*SMALL, "epochs=3", "execution.checkpoint_steps=2"]
TIMES = ("seconds", "images_per_second")


class Interrupt(Silent):
    """Stops a run from inside after so many steps, as Ctrl-C does."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def step(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def train(folder: Path, *changes: str, resume: bool = False, progress: Progress | None = None) -> None:
    fit("digits", out=folder, overrides=[*CHANGES, *changes], resume=resume, progress=progress or Silent())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    train(folder)
    return folder


def assert_same_run(folder: Path, reference: Path) -> None:
    for name in ("last.safetensors", "best.safetensors", "recipe.toml"):
        assert (folder / name).read_bytes() == (reference / name).read_bytes(), name
    rows, expected = read_rows(folder / "metrics.jsonl"), read_rows(reference / "metrics.jsonl")
    for row in [*rows, *expected]:
        for key in TIMES:
            del row[key]
    assert rows == expected
    assert len((folder / "metrics.csv").read_text().splitlines()) == 1 + len(rows)
    about, wanted = (json.loads((path / "model.json").read_text())["training"] for path in (folder, reference))
    del about["seconds"], wanted["seconds"]
    assert about == wanted
    ours, theirs = (load_state(path / "state.pt")["optimization"] for path in (folder, reference))
    assert ours["schedules"] == theirs["schedules"]
    for index, state in theirs["optimizer"]["state"].items():
        for key, value in state.items():
            assert torch.equal(ours["optimizer"]["state"][index][key], value), (index, key)


@pytest.mark.parametrize("steps", [1, 3, 5, 6, 14, 15])
def test_interrupted_at_any_step(steps: int, undisturbed: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", progress=Interrupt(steps))
    train(tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", undisturbed)


@pytest.mark.parametrize("steps", [7])
def test_telemetry_goes_on_where_it_was(steps: int, tmp_path: Path) -> None:
    """Only the first step of each epoch is observed, before the interruption: the row has its figures all the same."""
    changes = ("execution.telemetry_steps=5", "execution.checkpoint_steps=1", "ema=0.9")
    train(tmp_path / "whole", *changes)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", *changes, progress=Interrupt(steps))
    train(tmp_path / "run", *changes, resume=True)
    assert_same_run(tmp_path / "run", tmp_path / "whole")
    assert all("flip_ratio" in row for row in read_rows(tmp_path / "run" / "metrics.jsonl"))


def test_interrupted_again_and_again(undisturbed: Path, tmp_path: Path) -> None:
    for steps in (3, 4, 5):
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "run", resume=True, progress=Interrupt(steps))
    train(tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", undisturbed)


@pytest.mark.slow
def test_killed_without_warning(undisturbed: Path, tmp_path: Path) -> None:
    """SIGKILL at seeded random moments, until a start is left alone to finish."""
    rng = random.Random(20)
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "bitedge.cli", "train", "--recipe", "digits", "--out", str(folder), "--resume"]
    command += [word for change in CHANGES for word in ("--set", change)]
    killed = 0
    for _ in range(2):
        process = subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # Start counting when this attempt is training: the import of torch alone takes seconds on a busy machine.
        before = (folder / "state.pt").stat().st_mtime_ns if (folder / "state.pt").exists() else 0
        while process.poll() is None and (
            not (folder / "state.pt").exists() or (folder / "state.pt").stat().st_mtime_ns == before
        ):
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.15))
        process.kill()
        killed += process.wait() == -9
    assert killed > 0
    subprocess.run(command, env=environment(), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert_same_run(folder, undisturbed)
    for name in ("state.pt", "last.safetensors", "model.json"):  # a kill may leave temporary files, never half a file
        assert (folder / name).read_bytes(), name
    assert load_state(folder / "state.pt")["epoch"] == 3


def test_killed_between_the_state_and_what_follows_from_it(undisturbed: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", progress=Interrupt(6))
    for name in ("last.safetensors", "best.safetensors", "model.json"):
        (tmp_path / "run" / name).unlink()
    state = load_state(tmp_path / "run" / "state.pt")
    assert (state["epoch"], state["step"]) == (1, 0)
    train(tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", undisturbed)


def test_a_finished_run_is_left_as_it_is(undisturbed: Path) -> None:
    before = (undisturbed / "state.pt").stat().st_mtime_ns
    train(undisturbed, resume=True)
    assert (undisturbed / "state.pt").stat().st_mtime_ns == before


def test_resume_refuses_another_method(undisturbed: Path) -> None:
    with pytest.raises(TrainError, match=r"started with epochs = 3, not 5: a run cannot change its recipe half-way"):
        train(undisturbed, "epochs=5", resume=True)
    with pytest.raises(TrainError, match=r"optimizer\.gamma\.end"):
        train(undisturbed, "optimizer.gamma.end=1e-6", resume=True)


def test_resume_says_when_the_execution_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", progress=Interrupt(7))
    train(tmp_path / "run", "execution.checkpoint_steps=0", resume=True, progress=Lines())
    said = capsys.readouterr().err
    assert "resuming with execution.checkpoint_steps = 0 instead of 2" in said
    assert "after epoch 1, step 1" in said


def test_resume_of_nothing_starts_afresh(undisturbed: Path, tmp_path: Path) -> None:
    train(tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", undisturbed)


def test_damaged_state_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", progress=Interrupt(7))
    path = tmp_path / "run" / "state.pt"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(TrainError, match="cannot resume from"):
        train(tmp_path / "run", resume=True)


@pytest.mark.parametrize("missing", ["random", "optimization", "best"])
def test_state_of_another_version_is_refused(missing: str, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", progress=Interrupt(7))
    path = tmp_path / "run" / "state.pt"
    state = load_state(path)
    del state[missing]
    save_state(path, state)
    with pytest.raises(TrainError, match="does not hold the state of this run"):
        train(tmp_path / "run", resume=True)


def test_state_never_runs_code(tmp_path: Path) -> None:
    import pickle

    class Hostile:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return print, ("executed",)

    torch.save({"version": Hostile()}, tmp_path / "state.pt", pickle_module=pickle)
    with pytest.raises(TrainError, match="cannot resume from"):
        load_state(tmp_path / "state.pt")


def test_a_write_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "state.pt"
    save_state(target, {"a": 1})

    def fail(self: Path, other: Path) -> Path:
        raise OSError("disk gone")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="disk gone"):
        write_bytes(target, b"half")
    assert load_state(target) == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["state.pt"]


def test_log_drops_rows_after_the_checkpoint_and_a_torn_line(tmp_path: Path) -> None:
    lines = [json.dumps({"epoch": epoch, "loss": 1.0 / epoch}) for epoch in (1, 2, 3)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + '\n{"epoch": 4, "lo')
    log = MetricsLog(tmp_path, keep_epochs=2)
    log.add({"epoch": 3, "loss": 0.1})
    assert [row["epoch"] for row in read_rows(tmp_path / "metrics.jsonl")] == [1, 2, 3]
    assert (tmp_path / "metrics.csv").read_text().splitlines() == ["epoch,loss", "1,1.0", "2,0.5", "3,0.1"]
