"""Torch, the captured graph, the lowered graph, the core and onnxruntime agree on random networks.

60 networks in `make test`, always the same ones. The long run, the same 60 among its 1,000:

    BITEDGE_EXAMPLES=1000 .venv/bin/python -m pytest -n 2 tests/export/test_random_networks.py --timeout 7200
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, seed, settings
from tests.export.forced import core_differences, differences
from tests.export.random_networks import Case, InPlace, cases
from tests.export.random_operators import OPERATORS, Apply, draw
from torch import nn

from bitedge.export.capture.capture import Captured, trace
from bitedge.export.capture.operators import HANDLERS, VIEWS
from bitedge.export.formats.bundle import Bundle
from bitedge.export.formats.gguf import writer as gguf_writer
from bitedge.export.formats.onnx import float32 as onnx_float32
from bitedge.export.formats.onnx import int8 as onnx_int8
from bitedge.export.ir import ops, reference
from bitedge.export.ir.exactness import exact_values
from bitedge.export.ir.graph import Graph
from bitedge.export.lowering.lower import lower
from bitedge.export.verify.compare import verify_artifacts
from bitedge.export.verify.engines.onnx import open_session
from bitedge.export.verify.golden import reference_golden
from bitedge.runtime import Model

EXAMPLES = int(os.environ.get("BITEDGE_EXAMPLES", "60"))
PARTS = 4  # so that several processes can share them


def settled(examples: int) -> settings:
    return settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("part", range(PARTS))
def test_torch_graphs_core_and_onnxruntime_agree(part: int, tmp_path: Path) -> None:
    @seed(part)
    @settled(EXAMPLES // PARTS)
    @given(cases())
    def check(case: Case) -> None:
        check_case(case, tmp_path)

    check()


def check_case(case: Case, folder: Path) -> None:
    """Compare the graphs with torch value by value, and the files of a network by the contract."""
    captured = trace(case.module, case.shape, preprocessing=case.preprocessing)
    lowered = lower(captured.graph)
    known = captured.tensors(case.images)
    assert differences(captured.graph, known, case.images) == []
    merged = any(isinstance(node.op, ops.Scale | ops.Shift) for node in captured.graph.nodes)
    assert differences(lowered, known, case.images, merged=merged) == []
    packed = Bundle(captured.graph, lowered, reference_golden(lowered))
    gguf_writer.write(packed, folder / "model.gguf")
    onnx_float32.write(packed, folder / "model.onnx")
    onnx_int8.write(packed, folder / "model.int8.onnx")
    check_values(folder, captured, lowered, case, merged)
    verdict = verify_artifacts(folder, captured, lowered, case.images)
    assert all(row.breach is None or "golden" in row.breach for row in verdict.engines), verdict.text()


def check_values(folder: Path, captured: Captured, lowered: Graph, case: Case, merged: bool) -> None:
    """Hold every value of every engine to its definition, and the exact ones to torch."""
    exact, known, model = exact_values(lowered), captured.tensors(case.images), Model(folder / "model.gguf")
    for values, allowed in (
        (model.activations(case.images), None),
        (open_session(folder / "model.onnx").activations(case.images), None),
        (open_session(folder / "model.int8.onnx").activations(case.images), exact),
    ):
        assert core_differences(lowered, values, allowed) == []
        for name in exact & set(known):
            near = 1e-5 * np.abs(known[name]).max() if merged and known[name].dtype != np.int8 else 0
            np.testing.assert_allclose(
                values[name].reshape(known[name].shape), known[name], rtol=0, atol=near, err_msg=name
            )
    if lowered.output in exact:
        np.testing.assert_array_equal(model.run(case.images), reference.run(lowered, case.images))
        model.check()


def test_the_random_layers_hold_every_operator_that_capture_translates() -> None:
    random = np.random.default_rng(0)
    assert {draw((4, 6, 6), random, exact=False)[0] for _ in range(1000)} == set(OPERATORS)
    layers = [row.make((4, 6, 6), random) for row in OPERATORS.values()]
    layers += [nn.BatchNorm2d(4), nn.Hardtanh(), nn.MaxPool2d(2), InPlace(nn.Conv2d(4, 4, 1))]  # of every Drawer
    tails = [nn.Sequential(nn.Flatten())] * len(layers)
    for name, product in (("mm", torch.mm), ("matmul", torch.matmul)):
        layers.append(nn.Identity())
        tails.append(nn.Sequential(Apply("squeeze", torch.squeeze), Apply(name, product, torch.ones(4, 2))))
    targets: set[object] = set()
    for layer, tail in zip(layers, tails, strict=True):
        captured = trace(nn.Sequential(layer, nn.AdaptiveAvgPool2d(1), *tail), (4, 6, 6))
        targets |= {node.target for node in captured.program.graph.graph.nodes}
    assert {str(target) for target in {*HANDLERS, *VIEWS} - targets} == set()
