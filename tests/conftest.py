"""What tests of several rooms share: real data, and one real model trained for the whole session."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / "build" / "test-cache"


@pytest.fixture(scope="session", autouse=True)
def _one_thread_per_worker() -> None:
    """Keep each test process to one thread of torch: two workers share two cores."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def cifar10_dir() -> Path:
    """The official binary batches of CIFAR-10 (JPEG copy), unpacked once and kept in build/."""
    given = os.environ.get("BITEDGE_CIFAR10")
    if given:
        return Path(given)
    unpack = ROOT.parent / "shared" / "data" / "unpack"
    if not unpack.exists():
        reason = f"CIFAR-10 is not here: set BITEDGE_CIFAR10 to a folder with data_batch_1.bin, or provide {unpack}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    CACHE.mkdir(parents=True, exist_ok=True)
    target = CACHE / "cifar10"
    with FileLock(CACHE / "cifar10.lock"):
        if not target.exists():
            partial = CACHE / f"cifar10.{os.getpid()}"
            subprocess.run([sys.executable, str(unpack), "cifar10", str(partial)], check=True)
            partial.rename(target)
    return target


@pytest.fixture(scope="session")
def digits_run(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A run folder of the recipe `digits`, trained once for all workers of this session."""
    given = os.environ.get("BITEDGE_DIGITS_RUN")  # a run made before, to save a minute while developing
    if given:
        return Path(given)
    base = tmp_path_factory.getbasetemp() if worker_id == "master" else tmp_path_factory.getbasetemp().parent
    folder = base / "digits-run"
    with FileLock(base / "digits-run.lock"):
        if not (base / "digits-run.done").exists():
            command = [sys.executable, "-m", "bitedge.cli", "train", "--recipe", "digits", "--out", str(folder)]
            subprocess.run(command, check=True)
            (base / "digits-run.done").touch()
    return folder


@pytest.fixture(scope="session")
def digits_model(digits_run: Path) -> Path:
    """The packed model of that run."""
    folder = digits_run / "export"
    with FileLock(digits_run.parent / "digits-export.lock"):
        if not (folder / "model.gguf").exists():
            command = [sys.executable, "-m", "bitedge.cli", "export", str(digits_run), "--formats", "gguf"]
            subprocess.run(command, check=True)
    return folder / "model.gguf"
