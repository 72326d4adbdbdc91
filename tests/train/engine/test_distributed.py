"""Several processes on one CPU: torchrun with gloo, equal weights everywhere, resume, a divergence that is caught."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.train.small_runs import SMALL, environment
from torch import nn

from bitedge.train.engine.checkpoint import load_state
from bitedge.train.engine.distributed import Group, binary_hash, join, pick_device
from bitedge.train.engine.evaluate import evaluate
from bitedge.train.engine.metrics import read_rows
from bitedge.train.engine.progress import Silent
from bitedge.train.engine.run import load_run
from bitedge.train.engine.trainer import fit
from bitedge.train.errors import TrainError
from bitedge.train.nn.parameter import BinaryParameter, is_binary

# Each process trains, then writes the hash of its own weights and the value of its first norm beside the run.
WORKER = """
import json, sys
from pathlib import Path
from bitedge.train import session
from bitedge.train.engine.distributed import binary_hash
from bitedge.train.engine.progress import Silent
from bitedge.train.engine.trainer import fit

out, resume, changes = Path(sys.argv[1]), sys.argv[2] == "resume", sys.argv[3:]
conclude = session.Session._conclude

def tell(self, log):
    conclude(self, log)
    real = {n: p.double().sum().item() for n, p in self.module.named_parameters()}
    facts = {"hash": binary_hash(self.module), "sums": real, "batches": len(self.batches)}
    (out.parent / f"rank{self.group.rank}.json").write_text(json.dumps(facts))

session.Session._conclude = tell
DISTURBANCE
fit("digits", out=out, resume=resume, overrides=changes, progress=Silent())
"""

DISTURB = """
step = session.Session._train_step

def disturbed(self, *args):
    step(self, *args)
    {condition}:
        {action}

session.Session._train_step = disturbed
"""

ASTRAY = DISTURB.format(
    condition="if self.group.rank == 1 and self.step == 2", action="next(self.module.parameters()).data[0].neg_()"
)
STOPPED = DISTURB.format(condition="if self.epoch == 1 and self.step == 3", action="sys.exit(3)")


def torchrun(folder: Path, *words: str, disturbance: str = "") -> subprocess.CompletedProcess[str]:
    path = folder / "worker.py"
    path.write_text(WORKER.replace("DISTURBANCE", disturbance))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += [str(path), str(folder / "run"), *words]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=400)


CHANGES = [*SMALL, "execution.hash_steps=1", "execution.checkpoint_steps=2"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two processes that nothing disturbed, with what each of them says of its weights."""
    folder = tmp_path_factory.mktemp("whole")
    done = torchrun(folder, "new", *CHANGES)
    assert done.returncode == 0, done.stderr
    return folder


def test_two_processes_hold_the_same_weights(whole: Path) -> None:
    first, second = (json.loads((whole / f"rank{rank}.json").read_text()) for rank in (0, 1))
    assert first == second  # binary weights by hash, real ones to the last bit of their sums
    assert first["batches"] == 5
    run = load_run(whole / "run", checkpoint="last")
    assert binary_hash(run.module) == first["hash"]
    assert json.loads((whole / "run" / "environment.json").read_text())["processes"] == 2
    rows = read_rows(whole / "run" / "metrics.jsonl")
    assert [row["epoch"] for row in rows] == [1, 2]
    assert run.training["test"]["last"]["images"] == 360
    # the scores are those of the saved file: every process measured its share with the statistics of the first
    group = Group(0, 1, torch.device("cpu"))
    for split, told in (("test", run.training["test"]["last"]), ("validation", run.training["last"])):
        score = evaluate(run.module, run.dataset().loader(split, batch_size=120), group)
        assert score.accuracy == told["accuracy"]
        assert score.loss == pytest.approx(told["loss"], rel=1e-6)


@pytest.mark.slow
def test_two_processes_train_like_one_where_norms_see_one_image(tmp_path: Path) -> None:
    """LayerNorm has no statistics over the batch, so the halves of a batch give its gradient, up to rounding."""
    changes = [*SMALL, "network.arguments.norm=layer", "epochs=1"]
    done = torchrun(tmp_path, "new", *changes)
    assert done.returncode == 0, done.stderr
    alone = fit("digits", out=tmp_path / "alone", overrides=changes, progress=Silent())
    runs = (load_run(tmp_path / "run"), alone)
    losses = [read_rows(run.folder / "metrics.jsonl")[0]["train_loss"] for run in runs]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)
    ours, theirs = (torch.cat([p.flatten() for p in run.module.parameters() if is_binary(p)]) for run in runs)
    assert (ours == theirs).float().mean() > 0.95


@pytest.mark.slow
def test_two_processes_resume_bit_for_bit(whole: Path, tmp_path: Path) -> None:
    stopped = torchrun(tmp_path, "new", *CHANGES, disturbance=STOPPED)
    assert stopped.returncode != 0
    state = load_state(tmp_path / "run" / "state.pt")
    assert (state["epoch"], state["step"]) == (1, 3)
    resumed = torchrun(tmp_path, "resume", *CHANGES)
    assert resumed.returncode == 0, resumed.stderr
    for name in ("last.safetensors", "best.safetensors"):
        assert (tmp_path / "run" / name).read_bytes() == (whole / "run" / name).read_bytes()
    ours, theirs = (read_rows(folder / "run/metrics.jsonl")[-1] for folder in (tmp_path, whole))
    assert ours["train_loss"] == theirs["train_loss"]


def test_a_rank_that_goes_astray_stops_the_run(tmp_path: Path) -> None:
    done = torchrun(tmp_path, "new", *SMALL, "execution.hash_steps=1", disturbance=ASTRAY)
    assert done.returncode != 0
    assert "binary weights of ranks [1] differ from those of rank 0" in done.stderr
    assert not (tmp_path / "run" / "last.safetensors").exists()


def test_the_hash_sees_one_bit_and_nothing_else() -> None:
    class Toy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = BinaryParameter(torch.ones(3, 5))
            self.bias = nn.Parameter(torch.zeros(3))

    toy = Toy()
    before = binary_hash(toy)
    with torch.no_grad():
        toy.bias.add_(1)
    assert binary_hash(toy) == before
    with torch.no_grad():
        toy.weight[2, 4] = -1
    assert binary_hash(toy) != before


def test_alone_without_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    with join("cpu") as group:
        assert group == Group(0, 1, torch.device("cpu"))
        assert group.leads
        assert group.sum(torch.tensor([2.0])).item() == 2.0


def test_wrong_devices_are_refused() -> None:
    with pytest.raises(TrainError, match="expected auto, cpu, cuda"):
        pick_device("gpu")
    if not torch.cuda.is_available():
        with pytest.raises(TrainError, match="has no CUDA"):
            pick_device("cuda:0")


def test_synchronized_norms_need_gpus(tmp_path: Path) -> None:
    with pytest.raises(TrainError, match="sync_batchnorm needs GPUs"):
        fit("digits", out=tmp_path / "run", overrides=[*SMALL, "execution.sync_batchnorm=true"], progress=Silent())
