"""bitedge import: a file in, artifacts and a report out; bad input is one sentence and exit code 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.importers.onnx_forms import dense

from bitedge.cli import main as command


def test_a_file_becomes_artifacts_and_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dense(tmp_path / "network.onnx")
    out = tmp_path / "out"
    assert (
        command.main(["import", str(tmp_path / "network.onnx"), "--out", str(out), "--formats", "gguf", "--json"]) == 0
    )
    printed = capsys.readouterr()
    report = json.loads(printed.out)
    assert report["network"] == "network"
    assert report["source"]["engine"] == "onnxruntime"
    assert report["proof"]["files"]["model.gguf"]["bits_differing"] == 0
    assert (out / "model.gguf").exists()
    assert "reading" in printed.err


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("network.onnx", b"\x00\x01nonsense", "is not a valid ONNX file"),
        ("network.onnx", b"", "is not a valid ONNX file|must give one tensor"),
        ("network.tflite", b"nonsense", "is not a TFLite file"),
        ("network.pb", b"", "ends in .onnx or .tflite"),
    ],
)
def test_bad_files_are_one_sentence(
    name: str, content: bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(content)
    assert command.main(["import", str(tmp_path / name), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert any(part in said for part in message.split("|"))
    assert not (tmp_path / "out").exists()


def test_a_folder_that_was_imported_says_how_to_verify_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dense(tmp_path / "network.onnx")
    arguments = ["import", str(tmp_path / "network.onnx"), "--out", str(tmp_path / "out"), "--formats", "gguf"]
    assert command.main(arguments) == 0
    assert command.main(["verify", str(tmp_path / "out")]) == 2
    assert "was imported from" in capsys.readouterr().err
