"""XnorNet against table 1.3 of the facts."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bitedge.train.errors import TrainError
from bitedge.train.models import XnorNet
from bitedge.train.nn import BinaryConv2d, ChannelLayerNorm
from bitedge.train.nn.parameter import is_binary


def shapes(network: nn.Module, size: int) -> dict[str, tuple[int, ...]]:
    x = torch.zeros(2, 3, size, size)
    found = {}
    for name, layer in network.named_children():
        x = layer(x)
        found[name] = tuple(x.shape[1:])
    return found


def test_maps_at_224() -> None:
    found = shapes(XnorNet(num_classes=12, width=6, image_size=224), 224)
    assert [found[f"conv{i}"] for i in range(1, 8)] == [
        (6, 56, 56), (16, 27, 27), (24, 13, 13), (24, 13, 13), (16, 13, 13), (256, 1, 1), (256, 1, 1),
    ]  # fmt: skip
    assert [found[f"pool{i}"][1] for i in (1, 2, 5)] == [27, 13, 6]
    assert found["dense"] == (12,)


def test_full_width_weights() -> None:
    with torch.device("meta"):
        network = XnorNet()
    # 5·5·96·256 + 9·(256·384 + 384·384 + 384·256) + 36·256·4096 + 4096·4096
    binary = sum(layer.weight.numel() for layer in network.children() if isinstance(layer, BinaryConv2d))
    assert binary == 58_236_928
    assert network.get_submodule("conv1").weight.shape == (96, 3, 11, 11)
    assert network.get_submodule("dense").weight.shape == (1000, 4096)
    assert network.get_submodule("dense").bias is None


def test_norms_have_keras_numbers() -> None:
    network = XnorNet(width=6, image_size=64)
    norms = {name: layer for name, layer in network.named_children() if isinstance(layer, nn.BatchNorm2d)}
    assert {name: norm.eps for name, norm in norms.items()} == {
        "stem_norm": 1e-5, **{f"norm{i}": 1e-4 for i in range(1, 7)}, "norm7": 1e-3,
    }  # fmt: skip
    assert {(norm.momentum, norm.weight.requires_grad) for norm in norms.values()} == {(0.1, True)}


def test_only_the_middle_is_binary() -> None:
    network = XnorNet(width=6, image_size=64)
    binary = {name for name, parameter in network.named_parameters() if is_binary(parameter)}
    assert binary == {f"conv{index}.weight" for index in range(2, 8)}


@pytest.mark.parametrize(("stride", "kernel"), [(4, 1), (2, 3)])
def test_small_images_shrink_the_head_kernel(stride: int, kernel: int) -> None:
    network = XnorNet(num_classes=20, width=6, image_size=64, stem_stride=stride)
    head = network.get_submodule("conv6")
    assert isinstance(head, BinaryConv2d)
    assert head.kernel_size == (kernel, kernel)
    assert network(torch.randn(2, 3, 64, 64)).shape == (2, 20)


def test_tf_same_pads_the_stem_unevenly() -> None:
    network = XnorNet(width=6, image_size=224, tf_same=True)
    pad = network.get_submodule("pad1")
    assert isinstance(pad, nn.ZeroPad2d)
    assert pad.padding == (3, 4, 3, 4)
    assert shapes(network, 224)["conv1"] == (6, 56, 56)


def test_layer_variant() -> None:
    network = XnorNet(num_classes=5, width=6, norm="layer", image_size=64)
    norms = [layer for layer in network.children() if isinstance(layer, ChannelLayerNorm)]
    assert len(norms) == 8
    assert {norm.eps for norm in norms} == {1e-3}
    assert network(torch.randn(2, 3, 64, 64)).shape == (2, 5)


def test_too_small_an_image_is_refused_with_advice() -> None:
    with pytest.raises(TrainError, match=r"image_size 32 is too small .* smaller stem_stride"):
        XnorNet(image_size=32)
    with pytest.raises(TrainError, match="must be positive"):
        XnorNet(stem_stride=0)
