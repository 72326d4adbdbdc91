"""Networks as others write them: each is captured, and every value that torch has too is torch's."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.export.forced import differences
from tests.export.outside import blocks, general
from torch import nn

from bitedge.export import export
from bitedge.export.capture.capture import Captured, trace
from bitedge.export.ir import ops, reference
from bitedge.export.verify.engines.engines import ENGINES

NETWORKS = {**blocks.NETWORKS, **general.NETWORKS}
SHAPE = (3, 10, 10)
IMAGES = np.random.default_rng(3).normal(0, 1, (4, 10, 10, 3)).astype(np.float32)


def make(name: str) -> nn.Module:
    """Build a network whose norms have statistics and scales of every sign."""
    torch.manual_seed(sum(name.encode()))
    module = NETWORKS[name]()
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
                layer.running_mean.normal_(0, 0.7)  # type: ignore[union-attr]
                layer.running_var.uniform_(0.5, 4)  # type: ignore[union-attr]
                layer.weight.normal_(0.3, 1)
                layer.bias.normal_(0, 0.5)
            if isinstance(layer, nn.LayerNorm | nn.GroupNorm):
                layer.weight.normal_(1, 0.3)
                layer.bias.normal_(0, 0.3)
    return module.eval()


@cache
def captured(name: str) -> tuple[nn.Module, Captured]:
    module = make(name)
    return module, trace(module, SHAPE)


@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_captured_is_what_torch_computes(name: str) -> None:
    module, found = captured(name)
    known = found.tensors(IMAGES)
    assert found.graph.output in known
    assert differences(found.graph, known, IMAGES) == []
    with torch.no_grad():
        expected = module(torch.from_numpy(IMAGES.transpose(0, 3, 1, 2).copy())).numpy()
    np.testing.assert_allclose(
        reference.run(found.graph, IMAGES), expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max()
    )


BINARY = dict.fromkeys(NETWORKS, 1) | {
    "reactnet": 2,
    "birealnet": 2,
    "strict sign": 2,
    "hardtanh": 3,
    "densenet": 3,
}
BINARY |= {"meliusnet": 4, "pre-activation in place": 2, "own binary parameter": 2, "thresholds per channel": 2}
BINARY |= {"shared three times": 3, "group norm, gelu": 2, "layer norm over channels": 2, "odd averages": 2}
BINARY |= {"strided slices": 2, "BiRealNet18 at 10 pixels": 16}


@pytest.mark.parametrize("name", NETWORKS)
def test_every_binary_layer_is_found_whoever_wrote_it(name: str) -> None:
    graph = captured(name)[1].graph
    assert sum(isinstance(node.op, ops.BinaryConv2d) for node in graph.nodes) == BINARY[name]


@pytest.mark.parametrize("name", NETWORKS)
def test_all_four_artifacts_answer_as_torch(name: str, tmp_path: Path) -> None:
    module = make(name)
    report = export(module, (1, *SHAPE), tmp_path, formats=["gguf", "onnx", "int8", "tflite"])
    assert report.failures == {}
    with torch.no_grad():
        want = module(torch.from_numpy(IMAGES.transpose(0, 3, 1, 2).copy())).numpy()
    engines = [engine for engine in ENGINES if engine.file_name in report.sizes]
    assert [engine.name for engine in engines] == ["core", "onnx", "int8", "tflite"]
    for engine in engines:
        found = engine.open(tmp_path / engine.file_name).run(IMAGES)
        np.testing.assert_allclose(found, want, rtol=0, atol=1e-4 * np.abs(want).max(), err_msg=engine.name)


def test_there_are_enough_of_them() -> None:
    assert len(NETWORKS) >= 30
