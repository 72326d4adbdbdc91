"""Every registered network, small, goes into the artifacts; `export` itself holds each file to torch.

TFLite for the networks that convert in seconds in `make test`; for all of them by

    BITEDGE_ALL_TFLITE=1 .venv/bin/python -m pytest tests/export/test_registered_networks.py
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from torch import nn

from bitedge.cli.bench.networks import settle
from bitedge.export import export
from bitedge.train.models import NETWORKS, create_model

SIZES = {"xnornet": 64, "quicknet": 64, "quicknet_small": 64, "quicknet_large": 64}
"""Sides of the image; 32 for the others."""
QUICK = {"xnornet", "binaryresnet", "quicknet_small", "resnet20", "vgg_small"}
PACKED = {"gguf": "model.gguf", "onnx": "model.onnx", "int8": "model.int8.onnx"}


def revive_channels(module: nn.Module) -> None:
    """Give channels without variance one: 1/sqrt(eps) would magnify the rounding of Larq Compute Engine's sums."""
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d) and layer.running_var is not None:
            layer.running_var.clamp_(min=0.01)


@pytest.mark.slow
@pytest.mark.xdist_group("tensorflow")
@pytest.mark.parametrize("name", NETWORKS)
def test_all_artifacts_answer_as_torch(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    size = SIZES.get(name, 32)
    module = create_model(name, num_classes=4, width=8, image_size=size)
    settle(module, (3, size, size), 0)
    revive_channels(module)
    expected = dict(PACKED)
    if name in QUICK or os.environ.get("BITEDGE_ALL_TFLITE"):
        expected["tflite"] = "model.tflite"
    report = export(module, (3, size, size), tmp_path, formats=list(expected))
    assert not report.failures
    assert not report.skipped
    assert {path.name for path in tmp_path.glob("model.*")} == set(expected.values())
