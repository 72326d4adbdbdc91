"""BinaryNet against the figures of the paper's code."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bitedge.train.errors import TrainError
from bitedge.train.models import BinaryNet
from bitedge.train.nn import BinaryConv2d, BinaryLayer, ChannelLayerNorm
from bitedge.train.nn.parameter import is_binary


def binary_weights(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters() if is_binary(p))


def test_full_width_has_the_papers_shapes_and_weights() -> None:
    network = BinaryNet()
    assert binary_weights(network) == 10_352_000
    maps: dict[str, tuple[int, ...]] = {}
    x = torch.zeros(2, 3, 32, 32)
    for name, layer in network.named_children():
        x = layer(x)
        maps[name] = tuple(x.shape[1:])
    assert maps["conv1"] == (128, 30, 30)
    assert (maps["pool2"], maps["pool4"], maps["pool6"]) == ((128, 15, 15), (256, 7, 7), (512, 3, 3))
    assert maps["flatten"] == (4608,)
    assert maps["norm9"] == (10,)


def test_order_is_conv_pool_norm_and_every_weight_is_binary() -> None:
    names = [name for name, _ in BinaryNet(width=4).named_children()]
    assert names[:5] == ["conv1", "norm1", "conv2", "pool2", "norm2"]
    assert names[-2:] == ["dense9", "norm9"]
    layers = [layer for layer in BinaryNet(width=4).children() if isinstance(layer, BinaryLayer)]
    assert [layer.input_quantizer for layer in layers] == [None] + ["ste"] * 8
    assert not any(isinstance(layer, nn.Linear | nn.Conv2d) for layer in BinaryNet(width=4).children())


def test_batch_norm_has_keras_numbers_and_no_scale() -> None:
    norms = [layer for layer in BinaryNet(width=4).children() if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d)]
    assert len(norms) == 9
    assert {(norm.eps, norm.momentum, norm.weight.requires_grad) for norm in norms} == {(1e-3, 0.01, False)}
    scaled = BinaryNet(width=4, norm_scale=True).get_submodule("norm9")
    assert isinstance(scaled, nn.BatchNorm1d)
    assert scaled.weight.requires_grad


def test_last_norm_bounds_the_loss() -> None:
    """Ten balanced classes standardized: the best logits are 3 and -1/3, so that the loss cannot fall below 0.278."""
    logits = torch.eye(10).repeat(10, 1)
    norm = BinaryNet(width=4).get_submodule("norm9")
    loss = nn.functional.cross_entropy(norm(logits), torch.arange(10).repeat(10))
    assert float(loss.detach()) == pytest.approx(0.278, abs=0.01)


def test_layer_variant_norms_every_layer_over_channels() -> None:
    network = BinaryNet(width=4, norm="layer")
    assert sum(isinstance(layer, ChannelLayerNorm) for layer in network.children()) == 9
    assert network(torch.randn(2, 3, 32, 32)).shape == (2, 10)


def test_dense_layers_follow_the_width_unless_given() -> None:
    assert BinaryNet(width=16).get_submodule("dense8").weight.shape == (128, 128)
    assert BinaryNet(width=16, dense=40).get_submodule("dense8").weight.shape == (40, 40)


def test_padded_first_layer_gives_the_torch_variant() -> None:
    assert BinaryNet(width=128, first_padding=1).get_submodule("dense7").weight.shape == (1024, 8192)


def test_pad_value_and_quantizer_reach_the_layers() -> None:
    layer = BinaryNet(width=4, pad_value=1, quantizer="swish").get_submodule("conv3")
    assert isinstance(layer, BinaryConv2d)
    assert (layer.pad_value, layer.input_quantizer) == (1, "swish")


@pytest.mark.parametrize("size", [10, 28, 64])
def test_other_image_sizes(size: int) -> None:
    network = BinaryNet(num_classes=7, width=4, image_size=size, in_channels=1)
    assert network(torch.randn(2, 1, size, size)).shape == (2, 7)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(TrainError, match="image_size must be at least 10"):
        BinaryNet(image_size=9)
    with pytest.raises(TrainError, match="must be positive"):
        BinaryNet(width=0)
    with pytest.raises(TrainError, match="norm must be 'batch' or 'layer'"):
        BinaryNet(norm="none")  # type: ignore[arg-type]
