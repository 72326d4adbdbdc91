"""`bitedge bench kernels`: the native tool from Python, and the peers for single layers."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from bitedge.cli.bench import kernels, layers, native
from bitedge.cli.bench.engines import LAYER_ENGINES
from bitedge.cli.errors import CommandError
from bitedge.cli.main import main
from bitedge.runtime import Model, available_kernels

SMALL = layers.Stack("birealnet18 7x7", 64, 5)
COLUMNS = (
    *("layer", "engine", "kernel", "us", "gmacs_per_s", "limit_gmacs_per_s", "share", "status", "agrees", "reason"),
)


def plain(stack: layers.Stack, images: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The stack in torch, NHWC flattened."""
    value = torch.from_numpy(images).permute(0, 3, 1, 2)
    arrays = {key: torch.from_numpy(array).float() for key, array in stack.arrays().items()}
    for weight, scale, bias in zip(arrays["weight"], arrays["scale"], arrays["bias"], strict=True):
        value = F.conv2d(torch.where(value >= 0, 1.0, -1.0), weight, padding=1)
        value = value * scale.view(1, -1, 1, 1) + bias.view(1, -1, 1, 1)
    return np.asarray(value.permute(0, 2, 3, 1).reshape(len(images), -1))


def test_the_packed_stack_is_the_stack(tmp_path: Path) -> None:
    layers.write_packed(SMALL, tmp_path / "model.gguf")
    images = SMALL.images()
    model = Model(tmp_path / "model.gguf")
    model.check()
    np.testing.assert_array_equal(model.run(images), plain(SMALL, images))


def test_openvino_computes_the_stack(tmp_path: Path) -> None:
    pytest.importorskip("openvino", reason="OpenVINO is not installed: pip install 'bitedge[bench]'")
    rows = kernels.peer_rows(SMALL, 1000.0, rounds=1)
    assert [(row["engine"], row["status"], row["agrees"]) for row in rows] == [
        ("bitedge", "ok", True),
        ("openvino", "ok", True),
    ]
    assert all(row["share"] == pytest.approx(row["gmacs_per_s"] / 1000.0) for row in rows)


def test_a_peer_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "openvino.py").write_text("raise ModuleNotFoundError('no openvino', name='openvino')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    row = kernels.peer_rows(SMALL, None, rounds=1)[1]
    assert (row["engine"], row["status"], row["us"]) == ("openvino", "missing", None)
    assert row["reason"] == LAYER_ENGINES[0].install == "pip install 'bitedge[bench]'"


def test_an_installation_that_only_runs_models_names_the_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "find_spec", lambda _: None)
    (row,) = kernels.peer_rows(SMALL, 1000.0, rounds=1)
    assert (row["engine"], row["status"]) == ("openvino", "missing")
    assert row["reason"] == "pip install 'bitedge[train,bench]'"


def test_every_kernel_meets_every_layer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kernels, "STACKS", (SMALL,))
    monkeypatch.setattr(kernels, "TURNS", 1)
    report, page = tmp_path / "k.json", tmp_path / "k.md"
    assert main(["bench", "kernels", "--rounds", "1", "--json", str(report), "--markdown", str(page)]) == 0
    document = json.loads(report.read_text())
    assert document["host"]["compiler"]
    rows = document["rows"]
    assert all(tuple(row) == COLUMNS for row in rows)
    vectors = [f"bitedge {k.name}" for k in available_kernels() if k.built and k.supported and k.name != "scalar"]
    names = {row["layer"] for row in rows if row["kernel"]}
    first_words = {name.split()[0] for name in names}
    assert first_words >= {"birealnet18", "xnornet", "binarynet", "depthwise", "group_norm", "adaptive_avg", "gate"}
    for name in names:
        assert [row["engine"] for row in rows if row["layer"] == name] == vectors
    assert rows[-2]["layer"] == f"{SMALL.layer} x{layers.DEPTH}"
    assert "bare loop" in capsys.readouterr().out
    assert page.read_text().count("\n| birealnet18") >= len(vectors)


def test_a_wrong_answer_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(kernels, "STACKS", (SMALL,))
    monkeypatch.setattr(kernels, "TURNS", 1)
    monkeypatch.setattr(kernels, "write_arrays", lambda stack, path: layers.write_arrays(other(stack), path))

    def other(stack: layers.Stack) -> layers.Stack:
        class Turned(layers.Stack):
            def arrays(self, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
                return super().arrays(seed + 1)

        return Turned(stack.layer, stack.channels, stack.side)

    pytest.importorskip("openvino", reason="OpenVINO is not installed: pip install 'bitedge[bench]'")
    assert main(["bench", "kernels", "--rounds", "1"]) == 1
    assert "openvino: the answer differs" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--kernels", "mmx"], ["--rounds", "0"]])
def test_bad_options_are_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "kernels", *words]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("bitedge bench: ")


def test_the_tool_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert native.find() == Path(sys.prefix) / "bin" / "bitedge-bench"
    assert os.access(native.find(), os.X_OK)
    monkeypatch.setenv(native.VARIABLE, str(tmp_path / "absent"))
    with pytest.raises(CommandError, match="which is not a file"):
        native.find()


def test_a_stack_counts_its_work() -> None:
    assert replace(SMALL, side=1).macs == layers.DEPTH * 9 * 64 * 64
