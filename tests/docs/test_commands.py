"""Every command of the documentation is run, page by page, as it stands but for less data and narrower networks."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.docs.pages import PAGES, ROOT, commands

from bitedge.cli.main import main
from bitedge.train import load_run
from bitedge.train.experiments.sweep import SWEEPS

TINY = "--set data.limit=120 --set data.validation=80 --set network.arguments.width=4 --set execution.threads=1"
NARROW = f"{TINY} --set epochs=1"
LESS = {
    "bitedge train compare --variants": f"{TINY} --seeds 0",
    "bitedge train compare": f"{NARROW} --seeds 0",
    "bitedge train --recipe": NARROW,
    "bitedge train sweep": "--trials 1",
    "bitedge pipeline": f"{NARROW} --formats gguf,onnx",
    "bitedge bench --net": "--width 8 --image-size 64 --rounds 1 --engines bitedge",
    "bitedge bench kernels": "--rounds 1",
    "bitedge bench": "--rounds 1",
    "torchrun --nproc-per-node": NARROW,
    "python -m bitedge.train.throughput": "--batch 4 --width 4",
}
"""What is added to a command so that it ends soon; the first row that it begins with counts."""

ELSEWHERE = {
    "make test": "this very run",
    "make demo": "tests/cli/test_pipeline_verb.py",
    "make arm": "tests/runtime/test_arm.py",
    "bitedge inspect out/model.gguf": "tests/docs/test_your_network.py",
    "bitedge predict out/model.gguf": "tests/docs/test_your_network.py",
    "bitedge bench out/model.gguf": "tests/docs/test_your_network.py",
    "bitedge import": "tests/importers/test_page.py",
    "bitedge bench out": "tests/importers/test_page.py",
    "bitedge bench pareto": "tests/cli/bench/test_pareto.py",
    "bitedge serve out": "tests/serve/test_processes.py",
    "torchrun --nnodes": "two machines; tests/train/test_distributed.py runs two processes",
    "make -C RUN_DIR/export/c test": "tests/export/formats/c/test_c_folder.py",
    "python -m boards": "tests/export/formats/c/test_c_boards.py",
    "python runtime/tools/compare_libraries.py": "tests/runtime/test_compare_libraries.py",
    "python runtime/tools/arm_mix.py": "a disassembly, and llvm-mca of Debian's packages",
}
"""Commands that another test runs, or for which there is no place here."""

PLACES = {"postgresql://host/db": "sqlite:///shared.db", "ablation": "ablation.toml"}
"""What stands in for a server, and for a sweep of weeks."""


def begins(words: list[str], table: dict[str, str]) -> str | None:
    """The row of a table that a command begins with."""
    text = " ".join(words)
    return next((value for start, value in table.items() if text.startswith(start)), None)


RUN_HERE = {page: [words for words in commands(page) if begins(words, ELSEWHERE) is None] for page in PAGES}


def test_pages_have_commands_and_nothing_is_excused_for_nothing() -> None:
    documented = [words for page in PAGES for words in commands(page)]
    assert len(documented) > 30
    for start, reason in ELSEWHERE.items():
        assert any(" ".join(words).startswith(start) for words in documented), start
        assert " " in reason or (ROOT / reason).exists(), reason


@pytest.fixture
def place(digits_run: Path, cifar10_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the pages take for granted: a run, models, data, a photo, a sweep of one's own."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(digits_run, "RUN_DIR", ignore=shutil.ignore_patterns("export"))
    Path("DIR").symlink_to(cifar10_dir)
    Path("models").symlink_to(ROOT / "deploy" / "models")
    images, _ = load_run("RUN_DIR").evaluation(limit=1)
    Image.fromarray(np.asarray(images[0])).save("photo.jpg")
    less = dict(pair.split("=") for pair in NARROW.split() if "=" in pair)
    for target, source in (("ablation.toml", SWEEPS / "ablation.toml"), ("mine.toml", SWEEPS / "ablation-small.toml")):
        sweep = tomllib.loads(source.read_text())
        tables = {"set": {**sweep.pop("set", {}), **{key: int(value) for key, value in less.items()}}}
        tables["space"] = sweep.pop("space")
        lines = [f"{key} = {json.dumps(value)}" for key, value in sweep.items()]
        for name, table in tables.items():
            lines += [f"[{name}]", *(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in table.items())]
        Path(target).write_text("\n".join(lines) + "\n")
    return tmp_path


def serve(words: list[str], environment: dict[str, str]) -> None:
    """Start the server, ask it for its health, and end it as an orchestrator does."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen([*words, "--port", str(port)], env=environment) as process:
        try:
            for _ in range(300):
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
                        assert answer.status == 200
                        break
                except OSError:
                    assert process.poll() is None, f"{words} ended with {process.returncode}"
                    time.sleep(0.1)
            else:
                pytest.fail(f"{words} did not become ready")
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # what a command warns of is for its user
@pytest.mark.parametrize("page", [page for page in PAGES if RUN_HERE[page]], ids=lambda page: page.name)
def test_commands_of_the_page(page: Path, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for documented in RUN_HERE[page]:
        settings = [word for word in documented if "=" in word and word.split("=")[0].isupper()]
        words = [PLACES.get(word, word) for word in documented[len(settings) :]]
        environment = os.environ | dict(pair.split("=") for pair in settings) | {"OMP_NUM_THREADS": "1"}
        words = [*words, *(begins(words, LESS) or "").split()]
        if words[0] == "bitedge" and words[1] != "serve" and not settings:  # here, so that torch is loaded once
            status = main(words[1:])
            assert status == 0, f"{' '.join(documented)}\n{''.join(capsys.readouterr())[-4000:]}"
            continue
        words[0] = sys.executable if words[0] == "python" else str(Path(sys.executable).with_name(words[0]))
        if documented[:2] == ["bitedge", "serve"] and "--new-key" not in documented:
            serve(words, environment)
            continue
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(documented)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
