"""BiRealNet18 against table 1.3 of the facts and the size of larq zoo's model."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from bitedge.train.errors import TrainError
from bitedge.train.models import BiRealNet18
from bitedge.train.models.birealnet import BiRealBlock
from bitedge.train.models.blocks import half_avg_pool, same_max_pool
from bitedge.train.nn import BinaryConv2d, BinaryLayer, ChannelLayerNorm


def test_full_size_equals_larq_zoo() -> None:
    """Keras counts the running mean and variance of BatchNorm among the parameters."""
    network = BiRealNet18()
    statistics = sum(b.numel() for name, b in network.named_buffers() if "running" in name)
    assert sum(p.numel() for p in network.parameters()) + statistics == 11_699_112
    assert sum(m.weight.numel() for m in network.modules() if isinstance(m, BinaryLayer)) == 10_985_472


@pytest.mark.parametrize("tf_same", [False, True])
def test_maps_at_224(tf_same: bool) -> None:
    network = BiRealNet18(num_classes=7, width=4, image_size=224, tf_same=tf_same)
    x = torch.zeros(1, 3, 224, 224)
    sizes = {}
    for name, layer in network.eval().named_children():
        x = layer(x)
        sizes[name] = tuple(x.shape[1:])
    assert (sizes["stem_conv"], sizes["stem_pool"]) == ((4, 112, 112), (4, 56, 56))
    assert [sizes[f"block{i}"] for i in (4, 8, 12, 16)] == [(4, 56, 56), (8, 28, 28), (16, 14, 14), (32, 7, 7)]
    assert sizes["dense"] == (7,)


def test_tf_same_pads_unevenly() -> None:
    network = BiRealNet18(width=4, image_size=224, tf_same=True)
    pad = network.get_submodule("stem_pad")
    assert isinstance(pad, nn.ZeroPad2d)
    assert pad.padding == (2, 3, 2, 3)
    conv = network.get_submodule("block5.conv")
    assert isinstance(conv, BinaryConv2d)
    assert conv.pads(56, 56) == (0, 0, 1, 1)


@pytest.mark.parametrize("size", [111, 112])
def test_tf_same_pool_equals_padding_by_hand(size: int) -> None:
    x = torch.randn(1, 2, size, size) - 5
    before, after = (1, 1) if size % 2 else (0, 1)
    expected = F.max_pool2d(F.pad(x, (before, after, before, after), value=-torch.inf), 3, 2)
    assert torch.equal(same_max_pool(size, tf_same=True)(x), expected)


def test_average_of_an_odd_border_counts_real_pixels_only() -> None:
    assert torch.equal(half_avg_pool(3)(torch.ones(1, 1, 3, 3)), torch.ones(1, 1, 2, 2))
    assert half_avg_pool(4)(torch.ones(1, 1, 4, 4)).shape == (1, 1, 2, 2)


def test_block_adds_the_shortcut_after_the_norm() -> None:
    torch.manual_seed(0)
    block = BiRealNet18(width=4, image_size=64).get_submodule("block5").eval()
    assert isinstance(block, BiRealBlock)
    x = torch.randn(2, 4, 16, 16)
    shortcut = block.shortcut.get_submodule("conv")(F.avg_pool2d(x, 2))
    expected = block.norm(block.conv(x)) + block.shortcut.get_submodule("norm")(shortcut)
    torch.testing.assert_close(block(x), expected)


def test_no_relu_approx_sign_and_keras_numbers() -> None:
    network = BiRealNet18(width=4, image_size=64)
    assert not any(isinstance(module, nn.ReLU) for module in network.modules())
    assert {m.input_quantizer for m in network.modules() if isinstance(m, BinaryLayer)} == {"approx"}
    norms = [m for m in network.modules() if isinstance(m, nn.BatchNorm2d)]
    assert len(norms) == 1 + 16 + 3
    assert {(m.eps, m.momentum, m.weight.requires_grad) for m in norms} == {(1e-3, 0.2, True)}


@pytest.mark.parametrize("size", [32, 61, 64])
@pytest.mark.parametrize("tf_same", [False, True])
def test_other_image_sizes(size: int, tf_same: bool) -> None:
    network = BiRealNet18(num_classes=20, width=4, image_size=size, tf_same=tf_same)
    assert network(torch.randn(2, 3, size, size)).shape == (2, 20)


def test_small_stem_keeps_the_map() -> None:
    network = BiRealNet18(num_classes=20, width=4, image_size=32, stem_stride=1, stem_pool=False)
    assert network.get_submodule("stem_conv")(torch.zeros(1, 3, 32, 32)).shape == (1, 4, 32, 32)
    assert "stem_pool" not in dict(network.named_children())
    assert network(torch.randn(2, 3, 32, 32)).shape == (2, 20)


def test_layer_variant_has_no_batch_norm() -> None:
    network = BiRealNet18(num_classes=5, width=4, norm="layer", image_size=64)
    assert sum(isinstance(m, ChannelLayerNorm) for m in network.modules()) == 20
    assert not any(isinstance(m, nn.BatchNorm2d) for m in network.modules())


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(TrainError, match="must be positive"):
        BiRealNet18(width=0)
