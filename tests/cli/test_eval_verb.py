"""`bitedge eval`: runs and models of the box, in torch alone or in every engine."""

from __future__ import annotations

import json

import pytest

from bitedge.cli.main import main


@pytest.mark.slow
def test_boxed_model_is_the_same_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "digits", "--json"]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert main(["eval", "digits", "--everywhere", "--json"]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["torch_accuracy"] == pytest.approx(alone["accuracy"], abs=1e-9)
    assert {engine["engine"] for engine in verdict["engines"]} == {"core", "onnx", "int8", "tflite"}
    for engine in verdict["engines"]:
        assert engine["accuracy"] == pytest.approx(alone["accuracy"], abs=1e-9), engine["engine"]


def test_everywhere_takes_no_split(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "digits", "--everywhere", "--split", "train"]) == 2
    assert "drop --split" in capsys.readouterr().err


def test_unknown_run_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "no-such-run"]) == 2
    assert "no-such-run is not a run folder" in capsys.readouterr().err
