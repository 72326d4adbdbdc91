"""`bitedge verify`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bitedge.cli.main import main
from bitedge.export import export_run
from bitedge.export.formats.bundle import Bundle
from bitedge.export.formats.gguf import writer as gguf_writer
from bitedge.export.verify.engines.core import open_session
from bitedge.export.verify.folder import relower
from bitedge.export.verify.golden import Golden
from bitedge.runtime import RuntimeFault


@pytest.fixture(scope="module")
def exported(digits_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("verify")
    shutil.copytree(digits_run, folder / "run", ignore=shutil.ignore_patterns("export"))
    export_run(folder / "run", formats=["gguf"])
    return folder / "run" / "export"


def test_a_good_export_passes(exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(exported), "--limit", "30"]) == 0
    text = capsys.readouterr().out
    assert "torch = core on 30 images: top-1 agreement 100.00 %" in text
    assert "flatten.sign" in text


def test_json(exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(exported), "--limit", "5", "--json"]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["passed"] is True
    assert verdict["images"] == 5
    (core,) = [row for row in verdict["engines"] if row["engine"] == "core"]
    assert sum(layer["differing"] for layer in core["layers"]) == 0


def test_weights_of_another_epoch_are_a_breach(
    exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The artifact is sound in itself, but it is not this run's network."""
    shutil.copytree(exported.parent, tmp_path / "run")
    other = tmp_path / "run" / "export"
    weights = load_file(tmp_path / "run" / "best.safetensors")
    weights["conv2.weight"][0] *= -1
    save_file(weights, tmp_path / "run" / "best.safetensors")
    assert main(["verify", str(other), "--limit", "10"]) == 1
    assert "core: layer 'norm2.sign' differs from torch in" in capsys.readouterr().out


def test_an_altered_artifact_is_refused(exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(exported.parent, tmp_path / "run")
    path = tmp_path / "run" / "export" / "model.gguf"
    content = bytearray(path.read_bytes())
    content[-40] ^= 1
    path.write_bytes(content)
    assert main(["verify", str(path.parent), "--limit", "10"]) == 1
    assert "SHA-256" in capsys.readouterr().out


def test_what_is_no_export_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(tmp_path)]) == 2
    assert "is not an export folder" in capsys.readouterr().err


def test_a_golden_vector_that_fails_stops_verification(exported: Path, tmp_path: Path) -> None:
    _, captured, lowered = relower(exported)
    wrong = Golden(1, np.full((2, 10), 123.0, np.float32))
    gguf_writer.write(Bundle(captured.graph, lowered, wrong), tmp_path / "model.gguf")
    with pytest.raises(RuntimeFault):
        open_session(tmp_path / "model.gguf").check()
