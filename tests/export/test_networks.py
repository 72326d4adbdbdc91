"""The networks of the paper, their variants and users' own, on real images: torch against the core."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.export.small_networks import GRID, OFF_GRID, UserGrouped, UserResidual, enliven
from torch import nn

from bitedge.export import export, lower
from bitedge.export.capture.capture import trace
from bitedge.export.formats.bundle import Bundle
from bitedge.export.formats.gguf import writer as gguf_writer
from bitedge.export.verify.compare import verify_artifacts
from bitedge.export.verify.contract import Verdict
from bitedge.export.verify.golden import Golden
from bitedge.train.models import BinaryNet, BiRealNet18, XnorNet

SMALL_BIREAL = {"num_classes": 10, "width": 8, "image_size": 32, "stem_stride": 1, "stem_pool": False}
SMALL_XNOR = {"num_classes": 10, "width": 12, "image_size": 32, "stem_stride": 1}


@pytest.fixture(scope="module")
def cifar(cifar10_dir: Path) -> NDArray[np.uint8]:
    """A hundred test images, NHWC."""
    records = np.fromfile(cifar10_dir / "test_batch.bin", np.uint8, 100 * 3073).reshape(100, 3073)
    return np.ascontiguousarray(records[:, 1:].reshape(100, 3, 32, 32).transpose(0, 2, 3, 1))


def verified(module: nn.Module, images: NDArray[np.uint8], preprocessing: dict[str, Any], folder: Path) -> Verdict:
    export(module, (3, 32, 32), folder, formats=["gguf"], preprocessing=preprocessing)
    captured = trace(module, (3, 32, 32), preprocessing=preprocessing)
    return verify_artifacts(folder, captured, lower(captured.graph), images)


@pytest.mark.parametrize("first_padding", [0, 1])
@pytest.mark.parametrize("pad_value", [0, 1, -1])
def test_binarynet_agrees_in_every_bit(
    pad_value: int, first_padding: int, cifar: NDArray[np.uint8], tmp_path: Path
) -> None:
    torch.manual_seed(pad_value + 1)
    network = enliven(BinaryNet(width=12, pad_value=pad_value, first_padding=first_padding), cifar, GRID, pad_value + 7)
    verdict = verified(network, cifar, GRID, tmp_path)
    assert verdict.passed, verdict.breach
    (core,) = verdict.engines
    assert len(core.layers) == 8
    assert sum(layer.differing for layer in core.layers) == 0
    assert core.logit_error == 0
    # A first layer that pads pixels with +1 or -1 is a float layer to the rules, and exact all the same.
    assert verdict.exact == (pad_value == 0 or first_padding == 0)


@pytest.mark.parametrize(
    ("network", "options", "preprocessing"),
    [
        (BiRealNet18, SMALL_BIREAL, OFF_GRID),
        (BiRealNet18, SMALL_BIREAL | {"tf_same": True, "pad_value": 1}, GRID),
        (BiRealNet18, SMALL_BIREAL | {"norm": "layer"}, OFF_GRID),
        (XnorNet, SMALL_XNOR, OFF_GRID),
        (XnorNet, SMALL_XNOR | {"norm": "layer", "tf_same": True}, OFF_GRID),
        (BinaryNet, {"width": 8, "norm": "layer"}, GRID),
        (UserResidual, {}, OFF_GRID),
        (UserGrouped, {}, GRID),
    ],
    ids=["bireal", "bireal-tf", "bireal-layer", "xnor", "xnor-layer", "binary-layer", "user-residual", "user-grouped"],
)
def test_float_contract(
    network: Any, options: dict[str, Any], preprocessing: dict[str, Any], cifar: NDArray[np.uint8], tmp_path: Path
) -> None:
    torch.manual_seed(3)
    module = enliven(network(**options), cifar[:50], preprocessing)
    verdict = verified(module, cifar[:60], preprocessing, tmp_path)
    assert verdict.passed, verdict.breach
    assert verdict.engines[0].top1_agreement == 1.0


@pytest.mark.parametrize(
    ("network", "shape", "preprocessing", "megabytes"),
    [(BinaryNet, (3, 32, 32), GRID, 1.40), (BiRealNet18, (3, 224, 224), OFF_GRID, 4.1)],
)
def test_packed_size(
    network: Any, shape: tuple[int, int, int], preprocessing: dict[str, Any], megabytes: float, tmp_path: Path
) -> None:
    captured = trace(network(), shape, preprocessing=preprocessing)
    lowered = lower(captured.graph)
    outputs = 10 if network is BinaryNet else 1000
    labels = tuple(f"n{number:08d}" for number in range(outputs))
    golden = Golden(1, np.zeros((2, outputs), np.float32))
    gguf_writer.write(Bundle(captured.graph, lowered, golden, labels, preprocessing), tmp_path / "model.gguf")
    assert (tmp_path / "model.gguf").stat().st_size <= megabytes * 2**20
