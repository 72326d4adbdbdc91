"""Normalizations against their formulas."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from bitedge.train.errors import TrainError
from bitedge.train.nn import ChannelLayerNorm, batch_norm, make_norm


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_channel_layer_norm_normalizes_each_pixel_over_channels(layout: torch.memory_format) -> None:
    torch.manual_seed(0)
    layer = ChannelLayerNorm(5)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(5))
        layer.bias.copy_(torch.randn(5))
    x = torch.randn(2, 5, 3, 4) * 4
    values = x.double().numpy()
    mean, variance = values.mean(1, keepdims=True), values.var(1, keepdims=True)
    scale = layer.weight.detach().double().numpy()[:, None, None]
    centre = layer.bias.detach().double().numpy()[:, None, None]
    expected = (values - mean) / np.sqrt(variance + 1e-3) * scale + centre
    np.testing.assert_allclose(
        layer(x.contiguous(memory_format=layout)).detach().numpy(), expected, rtol=1e-5, atol=1e-5
    )


def test_channel_layer_norm_takes_dense_features() -> None:
    torch.manual_seed(0)
    layer = ChannelLayerNorm(6)
    x = torch.randn(3, 6)
    torch.testing.assert_close(layer(x), layer(x[:, :, None, None])[:, :, 0, 0])


def test_batch_norm_without_scale_is_an_ordinary_one_with_a_frozen_weight() -> None:
    layer = batch_norm(4, scale=False, momentum=0.1)
    assert isinstance(layer, nn.BatchNorm2d)
    assert not layer.weight.requires_grad
    assert layer.bias.requires_grad
    layer(torch.randn(8, 4, 2, 2)).square().sum().backward()
    assert layer.weight.grad is None
    assert torch.equal(layer.weight, torch.ones(4))
    assert (layer.eps, layer.momentum) == (1e-3, 0.1)


def test_make_norm_by_kind() -> None:
    assert isinstance(make_norm("batch", 3, dims=1), nn.BatchNorm1d)
    assert isinstance(make_norm("layer", 3), ChannelLayerNorm)
    with pytest.raises(TrainError, match="norm must be 'batch' or 'layer', got 'group'"):
        make_norm("group", 3)  # type: ignore[arg-type]
    with pytest.raises(TrainError, match="must be positive"):
        ChannelLayerNorm(0)
