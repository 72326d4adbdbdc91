"""BinaryResNet: its shapes, its size, and that a block is what the papers say."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from bitedge.train.errors import TrainError
from bitedge.train.models.binaryresnet import BinaryResNet, ResidualBlock
from bitedge.train.nn.parameter import is_binary


def test_maps_and_size() -> None:
    network = BinaryResNet().eval()
    shapes: dict[str, tuple[int, ...]] = {}
    for name, child in network.named_children():
        child.register_forward_hook(lambda _, __, out, name=name: shapes.__setitem__(name, tuple(out.shape[1:])))
    with torch.no_grad():
        network(torch.zeros(1, 3, 32, 32))
    assert shapes["stem_norm2"] == shapes["block4"] == (128, 16, 16)
    assert shapes["block5"] == shapes["block8"] == (256, 8, 8)
    assert shapes["block9"] == shapes["block12"] == (384, 4, 4)
    binary = sum(p.numel() for p in network.parameters() if is_binary(p))
    real = sum(p.numel() for p in network.parameters() if not is_binary(p))
    assert binary == 9 * (4 * 128**2 + 128 * 256 + 3 * 256**2 + 256 * 384 + 3 * 384**2)
    assert binary / 8 + 2 * real < 1.35e6


@pytest.mark.parametrize("halve", [False, True])
def test_block_by_hand(halve: bool) -> None:
    torch.manual_seed(0)
    out = 6 if halve else 4
    block = ResidualBlock(
        4, out, 8, halve=halve, norm="batch", norm_momentum=0.1, pad_value=0, quantizer="ste", latent=False
    ).eval()
    x = torch.randn(2, 4, 8, 8)
    with torch.no_grad():
        scale, shift = block.norm.get_parameter("weight"), block.norm.get_parameter("bias")
        for parameter in (scale, shift, block.act.weight):
            parameter.uniform_(-1, 1)
        y = F.conv2d(torch.where(x >= 0, 1.0, -1.0), block.conv.weight, stride=2 if halve else 1, padding=1)
        y = y * (scale / (1 + 1e-3) ** 0.5).view(1, -1, 1, 1) + shift.view(1, -1, 1, 1)
        if halve:
            weight = block.shortcut.get_parameter("conv.weight")
            y += F.conv2d(F.avg_pool2d(x, 2), weight) / (1 + 1e-3) ** 0.5
        else:
            y += x
        expected = torch.where(y >= 0, y, y * block.act.weight.view(1, -1, 1, 1))
        torch.testing.assert_close(block(x), expected)


def test_sizes_that_cannot_be_halved_are_refused() -> None:
    with pytest.raises(TrainError, match=r"multiple of 8.*got 20"):
        BinaryResNet(image_size=20)
    with pytest.raises(TrainError, match=r"width must be positive, got 0"):
        BinaryResNet(width=0)
