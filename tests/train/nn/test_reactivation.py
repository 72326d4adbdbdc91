"""RSign and RPReLU against the equations of ReActNet, written out in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from bitedge.train.errors import TrainError
from bitedge.train.nn import BinaryConv2d, RPReLU, RSign


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (6, 3)])
def test_rsign_is_a_sign_at_the_threshold_of_the_channel(shape: tuple[int, ...]) -> None:
    layer = RSign(3)
    alpha = [0.5, -0.25, 0.0]
    with torch.no_grad():
        layer.threshold.copy_(torch.tensor(alpha))
    x = drawn(*shape)
    x[0, 0] = 0.5  # at the threshold: +1
    x.requires_grad_()
    out = layer(x)
    values = x.detach().numpy()
    moved: Any = np.moveaxis(values, 1, -1) - np.array(alpha, np.float32)
    expected = np.moveaxis(np.where(moved >= 0, 1.0, -1.0), -1, 1)
    assert np.array_equal(out.detach().numpy(), expected)
    out.sum().backward()
    slope = np.moveaxis(np.maximum(2 - 2 * np.abs(moved), 0), -1, 1)  # Bi-Real Net's polynomial
    assert x.grad is not None
    assert layer.threshold.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), slope, rtol=1e-5, atol=1e-6)
    axes = tuple(axis for axis in range(values.ndim) if axis != 1)
    np.testing.assert_allclose(layer.threshold.grad.numpy(), -slope.sum(axes), rtol=1e-4)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (6, 3)])
def test_rprelu_bends_where_the_paper_says(shape: tuple[int, ...]) -> None:
    layer = RPReLU(3)
    gamma, beta, zeta = (np.array(v, np.float32) for v in ([0.3, -0.2, 0.0], [0.25, 0.5, -1.0], [0.1, 0.2, -0.3]))
    with torch.no_grad():
        layer.bend.copy_(torch.from_numpy(gamma))
        layer.prelu.weight.copy_(torch.from_numpy(beta))
        layer.shift.copy_(torch.from_numpy(zeta))
    x = drawn(*shape)
    last = np.moveaxis(x.numpy(), 1, -1)
    expected = np.where(last > gamma, last - gamma + zeta, beta * (last - gamma) + zeta)  # equation 6
    np.testing.assert_allclose(np.moveaxis(layer(x).detach().numpy(), 1, -1), expected, rtol=1e-5, atol=1e-6)


def test_rsign_feeds_a_binary_layer() -> None:
    network = torch.nn.Sequential(RSign(3), BinaryConv2d(3, 4, 3, input_quantizer=None))
    network(drawn(2, 3, 5, 5)).sum().backward()
    assert all(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in network.parameters())


@pytest.mark.parametrize("kind", [RSign, RPReLU])
def test_no_channels_are_refused(kind: type[RSign] | type[RPReLU]) -> None:
    with pytest.raises(TrainError, match="channels must be positive"):
        kind(0)
