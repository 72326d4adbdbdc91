"""Checkpoints with one bit for each binary weight: the same module comes back, and damage is told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from bitedge.train.engine.checkpoint import load_module, save_module
from bitedge.train.errors import TrainError
from bitedge.train.models import BinaryNet, BiRealNet18


@pytest.mark.parametrize("module", [BinaryNet(width=5, dense=11), BiRealNet18(num_classes=3, width=6)])
def test_packed_weights_come_back(module: torch.nn.Module, tmp_path: Path) -> None:
    plain, packed = tmp_path / "plain.safetensors", tmp_path / "packed.safetensors"
    save_module(plain, module)
    save_module(packed, module, pack=True)
    other = type(module)(
        **({"width": 5, "dense": 11} if isinstance(module, BinaryNet) else {"num_classes": 3, "width": 6})
    )
    load_module(packed, other)
    for name, value in module.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name
    assert packed.stat().st_size < plain.stat().st_size / 4


def test_bits_are_in_the_stated_order(tmp_path: Path) -> None:
    module = BinaryNet(width=4, dense=8)
    save_module(tmp_path / "m.safetensors", module, pack=True)
    with safe_open(tmp_path / "m.safetensors", framework="np") as file:
        stored = file.get_tensor("conv2.weight")
    signs = module.state_dict()["conv2.weight"].numpy().ravel()
    assert all((stored[i // 8] >> (i % 8)) & 1 == (signs[i] > 0) for i in range(signs.size))
    assert stored.dtype == np.uint8


def test_damaged_bits_are_refused(tmp_path: Path) -> None:
    module = BinaryNet(width=4, dense=8)
    save_module(tmp_path / "m.safetensors", module, pack=True)
    with safe_open(tmp_path / "m.safetensors", framework="pt") as file:
        tensors, metadata = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    tensors["conv2.weight"] = tensors["conv2.weight"][:-1]
    save_file(tensors, tmp_path / "short.safetensors", metadata=metadata)
    with pytest.raises(TrainError, match="cannot read the weights"):
        load_module(tmp_path / "short.safetensors", module)
    save_file(tensors, tmp_path / "odd.safetensors", metadata={"bitedge.bits": "[1"})
    with pytest.raises(TrainError, match="cannot read the weights"):
        load_module(tmp_path / "odd.safetensors", module)
