"""Verification: what agrees passes, and every way of disagreeing is found and named."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.export.run_folders import make_run
from tests.export.small_networks import GRID, UserResidual, enliven

from bitedge.export import ExportError, export, export_run, lower, verify, verify_artifacts, verify_export
from bitedge.export.capture.capture import Captured, trace
from bitedge.export.formats.bundle import Bundle
from bitedge.export.formats.gguf import writer as gguf_writer
from bitedge.export.ir import ops
from bitedge.export.ir.graph import Graph, Node
from bitedge.export.verify.engines.engines import Engine
from bitedge.export.verify.golden import reference_golden
from bitedge.export.verify.metadata import Metadata
from bitedge.runtime import Model
from bitedge.train.models import BinaryNet

IMAGES = np.random.default_rng(0).integers(0, 256, (24, 32, 32, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def binarynet() -> tuple[Captured, Graph]:
    torch.manual_seed(0)
    captured = trace(enliven(BinaryNet(width=8), IMAGES, GRID), (3, 32, 32), preprocessing=GRID)
    return captured, lower(captured.graph)


@pytest.fixture(scope="module")
def residual() -> tuple[Captured, Graph]:
    torch.manual_seed(0)
    captured = trace(enliven(UserResidual(), IMAGES, GRID), (3, 32, 32), preprocessing=GRID)
    return captured, lower(captured.graph)


def pack(graph: Graph, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    gguf_writer.write(Bundle(graph, graph, reference_golden(graph)), folder / "model.gguf")
    return folder


def alter(graph: Graph, output: str, change: NDArray[np.int32] | int) -> Graph:
    """Move the thresholds of the node that makes `output`."""

    def other(node: Node) -> Node:
        if node.outputs[0] != output:
            return node
        assert isinstance(node.op, ops.BinaryConv2d)
        assert isinstance(node.op.epilogue, ops.Threshold)
        moved = (node.op.epilogue.threshold + change).astype(np.int32)
        return replace(node, op=replace(node.op, epilogue=ops.Threshold(moved)))

    return graph.with_nodes(other(node) for node in graph.nodes)


def test_an_exact_network_agrees_in_every_bit(binarynet: tuple[Captured, Graph], tmp_path: Path) -> None:
    captured, lowered = binarynet
    labels = captured.run(IMAGES).argmax(axis=1)
    verdict = verify_artifacts(pack(lowered, tmp_path), captured, lowered, IMAGES, labels)
    assert verdict.passed
    assert verdict.exact
    (core,) = [row for row in verdict.engines if row.engine == "core"]
    assert core.logit_error == 0
    assert core.top1_agreement == core.accuracy == verdict.torch_accuracy == 1.0
    sources = ("norm1", "norm2", "norm3", "norm4", "norm5", "flatten", "norm7", "norm8")
    assert [layer.name for layer in core.layers] == [f"{name}.sign" for name in sources]
    assert all(layer.exact and layer.differing == 0 and layer.total > 0 for layer in core.layers)
    assert "torch = core on 24 images" in verdict.summary
    assert verdict.as_dict()["passed"] is True
    assert "norm3.sign" in verdict.text()


def test_a_float_network_keeps_the_float_contract(residual: tuple[Captured, Graph], tmp_path: Path) -> None:
    captured, lowered = residual
    verdict = verify_artifacts(pack(lowered, tmp_path), captured, lowered, IMAGES)
    assert verdict.passed, verdict.breach
    assert not verdict.exact
    assert verdict.torch_accuracy is None
    assert not any(layer.exact for layer in verdict.engines[0].layers)


def test_one_threshold_off_by_one_is_found_and_named(binarynet: tuple[Captured, Graph], tmp_path: Path) -> None:
    captured, lowered = binarynet
    thresholds = next(ops.epilogue_of(node.op) for node in lowered.nodes if node.outputs[0] == "norm3.sign")
    assert isinstance(thresholds, ops.Threshold)
    channel = int(np.abs(thresholds.threshold).argmin())  # one that decides something
    change = np.zeros(16, np.int32)
    change[channel] = 1
    verdict = verify_artifacts(pack(alter(lowered, "norm3.sign", change), tmp_path), captured, lowered, IMAGES)
    assert not verdict.passed
    assert verdict.breach.startswith("core: layer 'norm3.sign' differs from torch in ")
    assert verdict.breach.endswith(f"channel {channel}")
    assert "FAILED" in verdict.summary
    assert "BREACH" in verdict.text()
    first = next(layer for layer in verdict.engines[0].layers if layer.differing)
    assert first.name == "norm3.sign"


def test_a_wrong_layer_after_float_layers_is_found(residual: tuple[Captured, Graph], tmp_path: Path) -> None:
    """Not excused as rounding: torch's number is far from 0 there."""
    captured, lowered = residual

    def flipped(node: Node) -> Node:
        if node.layer != "conv3":
            return node
        assert isinstance(node.op, ops.BinaryConv2d)
        weight = node.op.weight.copy()
        weight[5] *= -1
        return replace(node, op=replace(node.op, weight=weight))

    wrong = lowered.with_nodes(flipped(node) for node in lowered.nodes)
    verdict = verify_artifacts(pack(wrong, tmp_path), captured, lowered, IMAGES)
    assert not verdict.passed
    assert "fed its own input, differs from its definition" in verdict.breach


def test_a_scale_off_by_a_few_last_places_is_found(residual: tuple[Captured, Graph], tmp_path: Path) -> None:
    """The core rounds sum · scale + bias once; what the int8 file may round otherwise is no excuse for it."""
    captured, lowered = residual

    def nudged(node: Node) -> Node:
        epilogue = ops.epilogue_of(node.op)
        if node.layer != "conv3" or not isinstance(epilogue, ops.Affine) or epilogue.scale is None:
            return node
        assert isinstance(node.op, ops.BinaryConv2d)
        scale = epilogue.scale * np.float32(1 + 4 * np.finfo(np.float32).eps)
        return replace(node, op=replace(node.op, epilogue=replace(epilogue, scale=scale)))

    wrong = lowered.with_nodes(nudged(node) for node in lowered.nodes)
    assert any(a is not b for a, b in zip(wrong.nodes, lowered.nodes, strict=True))
    verdict = verify_artifacts(pack(wrong, tmp_path), captured, lowered, IMAGES)
    assert "fed its own input, differs from its definition" in verdict.breach


def test_a_wrong_answer_is_found(residual: tuple[Captured, Graph], tmp_path: Path) -> None:
    captured, lowered = residual
    head = lowered.nodes[-1]
    assert isinstance(head.op, ops.Conv2d)
    louder = replace(head, op=replace(head.op, weight=head.op.weight * np.float32(1.01)))
    wrong = lowered.with_nodes([*lowered.nodes[:-1], louder])
    verdict = verify_artifacts(pack(wrong, tmp_path), captured, lowered, IMAGES)
    assert "the answer to image 0 is off by" in verdict.breach


def test_the_answer_comes_from_the_program_that_ships(
    binarynet: tuple[Captured, Graph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`activations` runs the layers one by one; a fused program that differs must not hide behind it."""
    captured, lowered = binarynet
    run = Model.run
    monkeypatch.setattr(Model, "run", lambda self, images: run(self, images) + np.float32(1))
    verdict = verify_artifacts(pack(lowered, tmp_path), captured, lowered, IMAGES)
    assert "the fused program answers image 0 otherwise" in verdict.breach


def test_a_required_engine_must_run(
    binarynet: tuple[Captured, Graph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured, lowered = binarynet
    folder = pack(lowered, tmp_path)
    with pytest.raises(ExportError, match=r"'onnx' is required, but .*model.onnx is not there"):
        verify_artifacts(folder, captured, lowered, IMAGES, require=["core", "onnx"])
    with pytest.raises(ExportError, match="there is no engine 'gguf'; the engines are core, onnx"):
        verify_artifacts(folder, captured, lowered, IMAGES, require=["gguf"])
    (folder / "model.onnx").touch()
    monkeypatch.setattr(Engine, "needs", lambda self: "needs onnxruntime" if self.name == "onnx" else "")
    assert verify_artifacts(folder, captured, lowered, IMAGES[:2]).passed, "a skipped engine passes unless required"
    verdict = verify_artifacts(folder, captured, lowered, IMAGES[:2], require=["onnx"])
    assert "onnx: required, but skipped" in verdict.breach


@pytest.mark.parametrize("key", ["name", "labels", "preprocessing", "training"])
def test_what_an_artifact_says_beside_the_network_is_compared(
    key: str, binarynet: tuple[Captured, Graph], tmp_path: Path
) -> None:
    captured, lowered = binarynet
    known: dict[str, Any] = {"labels": tuple("abcdefghij"), "preprocessing": GRID, "training": {"seed": 1}}
    bundle = Bundle(lowered, lowered, reference_golden(lowered), **known)
    gguf_writer.write(bundle, tmp_path / "model.gguf")
    right = Metadata(lowered.name, **known)
    assert verify_artifacts(tmp_path, captured, lowered, IMAGES[:2], metadata=right).passed
    wrong: Any = {"name": "other", "labels": tuple("jihgfedcba"), "preprocessing": None, "training": {"seed": 2}}[key]
    verdict = verify_artifacts(tmp_path, captured, lowered, IMAGES[:2], metadata=replace(right, **{key: wrong}))
    assert f"its {key} is" in verdict.breach


def test_a_module_in_memory_is_verified(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = enliven(BinaryNet(width=8), IMAGES, GRID)
    export(module, (3, 32, 32), tmp_path, formats=["gguf"], preprocessing=GRID)
    verdict = verify(module, tmp_path, IMAGES, preprocessing=GRID, require=["core"])
    assert verdict.passed, verdict.breach
    with torch.no_grad():
        module.get_parameter("norm9.bias").add_(1)
    assert not verify(module, tmp_path, IMAGES, preprocessing=GRID).passed


def test_a_folder_without_artifacts_is_refused(residual: tuple[Captured, Graph], tmp_path: Path) -> None:
    captured, lowered = residual
    with pytest.raises(ExportError, match="holds no artifact; expected one of model"):
        verify_artifacts(tmp_path, captured, lowered, IMAGES)
    with pytest.raises(ExportError, match="no images"):
        verify_artifacts(pack(lowered, tmp_path), captured, lowered, IMAGES[:0])


def test_a_run_is_exported_and_verified(digits_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(digits_run, run, ignore=shutil.ignore_patterns("export"))
    report = export_run(run, formats=["gguf"])
    assert report.source == {"run": "..", "checkpoint": "best"}
    verdict = verify_export(run / "export", limit=40)
    assert verdict.passed, verdict.breach
    assert verdict.exact
    assert verdict.images == 40
    assert verdict.torch_accuracy is not None
    moved = tmp_path / "elsewhere"
    run.rename(moved)
    assert verify_export(moved / "export", limit=8).passed, "the run is found again wherever both are moved together"


def test_half_weights_are_verified_against_half_weights(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    report = export_run(run, tmp_path / "out", formats=["gguf"], fp16=True, limit=20)
    assert report.half is not None
    assert report.half["images"] == 20
    verdict = verify_export(tmp_path / "out", limit=20)
    assert verdict.passed, verdict.breach


def test_what_is_no_export_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="is not an export folder: cannot read report"):
        verify_export(tmp_path)
    (tmp_path / "report.json").write_text("{}")
    with pytest.raises(ExportError, match="is damaged"):
        verify_export(tmp_path)
    known = {"network": "n", "input": {"kind": "uint8", "shape": [1, 1, 1]}, "source": None, "half": None}
    (tmp_path / "report.json").write_text(json.dumps(known))
    with pytest.raises(ExportError, match="exported from a module in memory"):
        verify_export(tmp_path)
