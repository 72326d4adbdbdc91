"""Networks that were once exported wrongly, or not at all: each test fails with capture by torch.fx."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bitedge.export import ExportError, capture
from bitedge.export.capture.capture import trace
from bitedge.export.ir import ops, reference
from bitedge.train.models import BiRealNet18
from bitedge.train.nn import BinaryConv2d
from bitedge.train.nn.parameter import BinaryParameter
from bitedge.train.nn.quantize import ste_sign

SHAPE = (4, 6, 6)
IMAGES = np.random.default_rng(0).normal(0, 1, (3, 6, 6, 4)).astype(np.float32)


def assert_same(module: nn.Module) -> None:
    torch.manual_seed(0)
    graph = capture(module, SHAPE)
    with torch.no_grad():
        want = module.eval()(torch.from_numpy(IMAGES.transpose(0, 3, 1, 2).copy())).numpy()
    np.testing.assert_allclose(reference.run(graph, IMAGES), want, rtol=1e-5, atol=1e-5)


class InPlace(nn.Module):
    """Writes into a value that is read again, in one of three ways."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.conv, self.relu = how, nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        y = x
        if self.how == "relu":
            out = self.conv(self.relu(y)) + x
        elif self.how == "augmented":
            y += self.conv(x)
            out = y + x
        else:
            y.add_(1.0)
            out = F.relu(x)
        return torch.mean(out, (2, 3))


@pytest.mark.parametrize("how", ["relu", "augmented", "add_"])
def test_in_place_writes_change_the_value_that_is_read_again(how: str) -> None:
    assert_same(InPlace(how))


def test_a_keyword_that_nobody_gives_is_not_the_image() -> None:
    class Skip(nn.Module):
        def forward(self, x: Tensor, skip: Tensor | None = None) -> Tensor:
            x = F.relu(x)
            return (x if skip is None else x + skip).mean((2, 3))

    assert_same(Skip())


def test_a_users_own_binary_layer_is_binary() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = BinaryParameter(torch.where(torch.randn(4, 4, 3, 3) >= 0, 1.0, -1.0))

        def forward(self, x: Tensor) -> Tensor:
            return F.conv2d(ste_sign(x), self.weight).mean((2, 3))

    assert [type(node.op) for node in capture(Own(), SHAPE).nodes][:2] == [ops.Sign, ops.BinaryConv2d]
    assert_same(Own())


def test_functions_of_parameters_are_computed_once() -> None:
    class Latent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 4, 3, 3))

        def forward(self, x: Tensor) -> Tensor:
            return F.conv2d(ste_sign(x), ste_sign(self.weight) * self.weight.abs().mean((1, 2, 3), True)).mean((2, 3))

    assert [type(node.op) for node in capture(Latent(), SHAPE).nodes][:3] == [ops.Sign, ops.BinaryConv2d, ops.Scale]
    assert_same(Latent())


@pytest.mark.parametrize("size", [80, 112, 200])
def test_birealnet_can_be_captured_at_any_size(size: int) -> None:
    module = BiRealNet18(5, 4, image_size=size)
    graph = capture(module, (3, size, size))
    assert sum(isinstance(node.op, ops.BinaryConv2d) for node in graph.nodes) == 16


def test_an_honest_difference_keeps_its_rounding() -> None:
    class Rounded(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x * 1e6
            return (x - y + y).mean((2, 3))

    graph = capture(Rounded(), SHAPE)
    assert sum(isinstance(node.op, ops.Add) for node in graph.nodes) == 2
    assert_same(Rounded())


def test_where_zero_has_no_sign_of_its_own_the_node_is_marked() -> None:
    conv = BinaryConv2d(4, 4, 1, input_quantizer=None)

    class Zero(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = conv

        def forward(self, x: Tensor) -> Tensor:
            return self.conv(torch.sign(F.relu(x))).mean((2, 3))  # type: ignore[no-any-return]

    captured = trace(Zero(), SHAPE)
    (sign,) = [node for node in captured.graph.nodes if isinstance(node.op, ops.Sign)]
    assert isinstance(sign.op, ops.Sign)
    assert sign.op.at_zero == 0
    assert (captured.tensors(IMAGES)[sign.outputs[0]] == 0).any()


def test_weights_that_are_exactly_zero_are_refused() -> None:
    class Zeros(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 4, 3, 3))
            self.weight.data[0, 0, 0, 0] = 0

        def forward(self, x: Tensor) -> Tensor:
            return F.conv2d(ste_sign(x), self.weight.sign()).mean((2, 3))

    with pytest.raises(ExportError, match="layer 'conv2d': 1 of 144 weights are exactly 0, the others ±s"):
        capture(Zeros(), SHAPE)
