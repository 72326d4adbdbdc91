"""`bitedge export`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bitedge.cli.main import main
from bitedge.runtime import Model


def test_a_run_becomes_artifacts_and_a_report(
    digits_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(digits_run), "--out", str(tmp_path / "out"), "--formats", "gguf", "--strict"]) == 0
    text = capsys.readouterr().out
    assert "conv1 + norm1" in text
    assert "times smaller" in text
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"model.gguf", "report.json", "report.md"}
    model = Model(tmp_path / "out" / "model.gguf")
    model.check()
    assert model.labels == tuple(map(str, range(10)))
    assert model.training is not None
    assert model.training["data"] == "digits"
    assert 'name = "digits"' in model.training["recipe"]


def test_json(digits_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["export", str(digits_run), "--out", str(tmp_path), "--formats", "gguf", "--checkpoint", "last", "--json"]
    assert main(words) == 0
    report = json.loads(capsys.readouterr().out)
    assert report == json.loads((tmp_path / "report.json").read_text())
    assert report["source"]["checkpoint"] == "last"
    assert report["totals"]["macs_float"] == 0


def test_half_weights_change_nothing_in_a_network_without_float_layers(
    digits_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["export", str(digits_run), "--out", str(tmp_path), "--formats", "gguf", "--fp16", "--limit", "20"]
    assert main(words) == 0
    assert "float weights as float16: 0 bytes smaller" in capsys.readouterr().out


def test_what_is_no_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(tmp_path)]) == 2
    assert "is not a run folder" in capsys.readouterr().err


def test_an_unknown_format_is_refused(digits_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(digits_run), "--formats", "zip"]) == 2
    assert "there is no format 'zip'; the formats are gguf" in capsys.readouterr().err
