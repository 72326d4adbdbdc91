"""The script of docs/your-network.md, as it stands, on digits in an image folder, and the commands after it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.docs.pages import ROOT, blocks, commands

from bitedge.cli.main import main
from bitedge.runtime import Model
from bitedge.train import load_dataset

PAGE = ROOT / "docs" / "your-network.md"


def write_folder(root: Path) -> None:
    """Save the embedded digits as PNG files, 60 of each class to train on and 20 to test."""
    digits = load_dataset("digits")
    for split, source, count in (("train", "train", 60), ("val", "test", 20)):
        images, labels = digits.arrays(source)
        for label in np.unique(labels):
            folder = root / split / str(label)
            folder.mkdir(parents=True)
            for number, image in enumerate(images[labels == label][:count]):
                Image.fromarray(image).save(folder / f"{number}.png")


@pytest.mark.slow
def test_script_and_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path / "images")
    (script,) = blocks(PAGE, "python")
    (tmp_path / "mine.py").write_text(script)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "mine.py"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    accuracy = float(done.stdout.splitlines()[-1].split(" %")[0])
    assert accuracy > 50, "chance is 10 %"
    assert {"model.gguf", "model.onnx", "model.int8.onnx", "model.tflite"} <= {p.name for p in Path("out").iterdir()}
    assert sum("binary" in node.op for node in Model("out/model.gguf").nodes) == 2
    for words in commands(PAGE):
        if words[1] not in ("serve", "train"):
            assert main(words[1:]) == 0, words
