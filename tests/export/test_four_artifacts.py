"""All four artifacts together: written by default, of the promised sizes, and of one mind on real images."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.export.padded_graphs import bundle
from tests.export.small_networks import GRID, OFF_GRID, enliven
from torch import nn

from bitedge.cli.main import main
from bitedge.export import ExportError, export, lower, verify_artifacts
from bitedge.export.capture.capture import trace
from bitedge.export.formats.onnx import float32 as onnx_float32
from bitedge.export.formats.tflite import writer as tflite_writer
from bitedge.train.models import BinaryNet, BiRealNet18, XnorNet

MB = 2**20
FILES = ["model.gguf", "model.int8.onnx", "model.onnx", "model.tflite"]


def real_images(folder: Path, count: int) -> NDArray[np.uint8]:
    records = np.fromfile(folder / "test_batch.bin", np.uint8).reshape(-1, 3073)[:count]
    return np.ascontiguousarray(records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.xdist_group("tensorflow")
@pytest.mark.parametrize(
    ("make", "preprocessing", "count"),
    [
        pytest.param(partial(BinaryNet, width=32), GRID, 200, id="BinaryNet"),
        pytest.param(partial(BiRealNet18, 10, width=16, image_size=32, stem_stride=1), OFF_GRID, 60, id="BiRealNet18"),
        pytest.param(partial(XnorNet, 10, width=12, image_size=32, stem_stride=1), OFF_GRID, 60, id="XnorNet"),
    ],
)
def test_all_engines_answer_as_torch_on_real_images(
    make: Callable[[], nn.Module], preprocessing: dict[str, object], count: int, cifar10_dir: Path, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    images = real_images(cifar10_dir, count)
    module = enliven(make(), images[:64], preprocessing)
    report = export(module, (3, 32, 32), tmp_path, preprocessing=preprocessing)
    assert sorted(report.sizes) == FILES
    captured = trace(module, (3, 32, 32), preprocessing=preprocessing)
    lowered = lower(captured.graph)
    verdict = verify_artifacts(tmp_path, captured, lowered, images)
    assert verdict.passed, verdict.text()
    assert [row.engine for row in verdict.engines if not row.skipped] == ["core", "onnx", "int8", "tflite"]
    assert not verdict.exact or {row.top1_agreement for row in verdict.engines} == {1.0}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("network", "preprocessing", "megabytes"),
    [(BinaryNet, GRID, 1.6), (partial(BiRealNet18, image_size=32), OFF_GRID, 4.3)],  # weights of 224x224, smaller maps
    ids=["BinaryNet", "BiRealNet18"],
)
def test_full_networks_have_the_promised_tflite_sizes(
    network: Callable[[], nn.Module], preprocessing: dict[str, object], megabytes: float, tmp_path: Path
) -> None:
    graph = lower(trace(network().eval(), (3, 32, 32), preprocessing=preprocessing).graph)
    tflite_writer.write(bundle(graph), tmp_path / "model.tflite")
    assert (tmp_path / "model.tflite").stat().st_size <= megabytes * MB


@pytest.mark.timeout(1800)
@pytest.mark.xdist_group("tensorflow")
def test_the_verb_writes_four_files_by_default(digits_run: Path, tmp_path: Path) -> None:
    assert main(["export", str(digits_run), "--out", str(tmp_path)]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [*FILES, "report.json", "report.md"]
    assert sorted(json.loads((tmp_path / "report.json").read_text())["files"]) == FILES


def test_a_failing_format_does_not_spoil_the_others(
    digits_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise ExportError("the ink has run out")

    monkeypatch.setattr(onnx_float32, "write", refuse)
    assert main(["export", str(digits_run), "--out", str(tmp_path), "--formats", "gguf,onnx,int8"]) == 1
    assert "onnx FAILED: the ink has run out" in capsys.readouterr().out
    written = sorted(path.name for path in tmp_path.iterdir())
    assert written == ["model.gguf", "model.int8.onnx", "report.json", "report.md"]
