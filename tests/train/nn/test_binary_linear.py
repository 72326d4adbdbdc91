"""Binary dense layer."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bitedge.train.errors import TrainError
from bitedge.train.nn import BinaryLinear
from bitedge.train.nn.parameter import is_binary


@pytest.mark.parametrize("features", [1, 7, 64, 129])
def test_forward_is_the_integer_product(features: int) -> None:
    torch.manual_seed(features)
    layer = BinaryLinear(features, 5)
    x = torch.randn(3, features)
    x[0, 0] = -0.0
    bits = np.where(x.numpy() >= 0, 1, -1)
    expected = bits @ layer.binary_weight().numpy().astype(np.int64).T
    assert np.array_equal(layer(x).detach().numpy(), expected)


def test_input_gradient_is_masked_and_weight_gradient_is_plain() -> None:
    layer = BinaryLinear(3, 2)
    x = torch.tensor([[0.5, 1.0, 1.5]], requires_grad=True)
    layer(x).sum().backward()
    assert x.grad is not None
    assert x.grad[0].tolist() == [*layer.weight.sum(0)[:2].tolist(), 0.0]
    assert layer.weight.grad is not None
    assert torch.equal(layer.weight.grad, torch.ones(2, 3))


def test_marks() -> None:
    assert is_binary(BinaryLinear(4, 4).weight)
    latent = BinaryLinear(4, 4, latent=True)
    assert not is_binary(latent.weight)
    assert float(latent.weight.detach().abs().max()) < 1


def test_bad_sizes_are_refused() -> None:
    with pytest.raises(TrainError, match="must be positive, got 0 and 3"):
        BinaryLinear(0, 3)
