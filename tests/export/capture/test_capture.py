"""Capture: every supported layer and function, in torch's own arithmetic; everything else refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.export.forced import differences
from torch import Tensor, nn

from bitedge.export import ExportError, capture
from bitedge.export.capture.capture import trace
from bitedge.export.ir import ops
from bitedge.export.ir.graph import Kind
from bitedge.export.ir.shapes import infer
from bitedge.train.nn import BinaryConv2d, BinaryLinear, ChannelLayerNorm
from bitedge.train.nn.quantize import approx_sign, ste_sign

SHAPE = (4, 8, 8)
IMAGES = np.random.default_rng(0).normal(0, 1, (3, 8, 8, 4)).astype(np.float32)


class Calls(nn.Module):
    """A function of an image, with a few parameters at hand."""

    def __init__(self, function: Callable[[Calls, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.kernel = nn.Parameter(torch.randn(6, 4, 3, 3))
        self.bias = nn.Parameter(torch.randn(6))
        self.matrix = nn.Parameter(torch.randn(5, 4))
        self.slope = nn.Parameter(torch.tensor([0.25]))
        self.mean = nn.Parameter(torch.randn(4), requires_grad=False)
        self.var = nn.Parameter(torch.rand(4) + 0.5, requires_grad=False)
        self.conv = BinaryConv2d(4, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Call the function."""
        return self.function(self, x)


class Inside(nn.Module):
    """A module inside a module."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        """Call the inner one."""
        result: Tensor = self.inner(x)
        return result


def globally(x: Tensor) -> Tensor:
    return x.mean((2, 3))


FUNCTIONS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "conv2d": lambda m, x: globally(F.conv2d(x, m.kernel, m.bias, stride=2, padding=1)),
    "torch.conv2d": lambda m, x: globally(torch.conv2d(x, m.kernel)),
    "linear": lambda m, x: F.linear(globally(x), m.matrix),
    "batch_norm": lambda m, x: globally(F.batch_norm(x, m.mean, m.var, eps=1e-3)),
    "relu": lambda m, x: globally(F.relu(x)),
    "torch.relu": lambda m, x: globally(torch.relu(x)),
    "method relu": lambda m, x: globally(x.relu()),
    "prelu": lambda m, x: globally(F.prelu(x, m.slope)),
    "max_pool2d": lambda m, x: globally(F.max_pool2d(x, 3, 2, 1)),
    "max_pool2d, ceil": lambda m, x: globally(F.max_pool2d(x, 3, 2, ceil_mode=True)),
    "avg_pool2d": lambda m, x: globally(F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)),
    "adaptive_avg_pool2d": lambda m, x: torch.flatten(F.adaptive_avg_pool2d(x, 1), 1),
    "dropout": lambda m, x: globally(F.dropout(x, 0.5, m.training)),
    "softmax": lambda m, x: F.softmax(globally(x), dim=1),
    "method softmax": lambda m, x: globally(x).softmax(-1),
    "pad": lambda m, x: globally(F.conv2d(F.pad(x, (1, 0, 2, 1)), m.kernel)),
    "flatten": lambda m, x: globally(x).flatten(1),
    "reshape": lambda m, x: torch.reshape(F.avg_pool2d(x, 8), (x.shape[0], -1)),
    "view": lambda m, x: F.avg_pool2d(x, 8).view(-1, 4),
    "unflatten": lambda m, x: globally(globally(x).view(x.size(0), 4, 1, 1)),
    "add": lambda m, x: globally(torch.add(x, F.relu(x))),
    "method add": lambda m, x: globally(x.add(x.relu())),
    "augmented add": lambda m, x: globally(augmented(x)),
    "ste_sign": lambda m, x: globally(m.conv(ste_sign(x))),
    "approx_sign": lambda m, x: globally(approx_sign(x)),
    "mean, kept": lambda m, x: x.mean(dim=[-1, -2], keepdim=True),
}


def augmented(x: Tensor) -> Tensor:
    y = F.relu(x)
    y += x
    return y


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    torch.manual_seed(1)
    captured = trace(Calls(FUNCTIONS[name]), SHAPE)
    known = captured.tensors(IMAGES)
    assert captured.graph.output in known
    assert differences(captured.graph, known, IMAGES) == []


def test_layers_keep_the_names_of_torch_and_signs_are_shared() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = BinaryConv2d(4, 4, 1), BinaryConv2d(4, 4, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            x = F.relu(x)
            return globally(self.a(x) + self.b(x))

    graph = capture(Two(), SHAPE)
    assert [node.outputs[0] for node in graph.nodes] == ["relu", "relu.sign", "a", "b", "add", "mean"]
    assert [node.layer for node in graph.nodes] == ["relu", "relu.sign", "a", "b", "add", "mean"]


def test_a_layer_that_is_called_twice_gets_two_names() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = BinaryConv2d(4, 4, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            return globally(self.conv(self.conv(x)))

    captured = trace(Twice(), SHAPE)
    assert {"conv", "conv#2"} <= set(infer(captured.graph))
    assert differences(captured.graph, captured.tensors(IMAGES), IMAGES) == []


def test_preprocessing_is_part_of_the_graph() -> None:
    network = nn.Sequential(nn.Conv2d(3, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    preprocessing = {"scale": [0.1, 0.2, 0.3], "offset": [-1.0, 0.0, 1.0]}
    captured = trace(network, (1, 3, 8, 8), preprocessing=preprocessing)
    assert captured.graph.input.kind is Kind.UINT8
    assert isinstance(captured.graph.nodes[0].op, ops.Normalize)
    images = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3), dtype=np.uint8)
    assert differences(captured.graph, captured.tensors(images), images) == []


def test_flatten_keeps_torchs_meaning_of_every_feature() -> None:
    network = nn.Sequential(
        nn.MaxPool2d(2), nn.Flatten(), nn.BatchNorm1d(64), nn.PReLU(64), nn.Linear(64, 7), nn.Flatten()
    ).eval()
    with torch.no_grad():
        network[2].running_mean.normal_()  # type: ignore[operator]
        network[3].weight.normal_()  # type: ignore[operator]
    captured = trace(network, SHAPE)
    assert differences(captured.graph, captured.tensors(IMAGES), IMAGES) == []


def test_the_callers_module_is_left_as_it_was() -> None:
    network = nn.Sequential(nn.BatchNorm2d(4), nn.Dropout(0.5), nn.AdaptiveAvgPool2d(1), nn.Flatten()).train()
    capture(network, SHAPE)
    assert all(layer.training for layer in network.modules())


def test_an_in_place_layer_does_not_spoil_the_record() -> None:
    captured = trace(
        nn.Sequential(nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()), SHAPE
    )
    known = captured.tensors(IMAGES)
    assert (known["0"] < 0).any()


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Sequential(nn.Softplus()), "layer '0': the operation 'softplus' is not supported. Supported: convolutions"),
        (nn.Sequential(nn.Sequential(nn.Softplus())), "layer '0.0': the operation 'softplus'"),
        (Calls(lambda m, x: torch.erf(x)), "layer 'erf': the operation 'erf' is not supported. Supported: "),
        (Inside(Calls(lambda m, x: x.erf())), "layer 'inner.erf': the operation 'erf' is not supported"),
        (Calls(lambda m, x: x + torch.arange(8.0)), r"a parameter of shape \[8\] on \[N, 4, 8, 8\] is not supported"),
        (Calls(lambda m, x: x.mean(1)), r"only the mean and maximum over height and width"),
        (Calls(lambda m, x: globally(x.view(2, -1, 4)[:, :, :, None])), r"reduces \[N, 64, 4, 1\] over \[2, 3\]"),
        (
            Calls(lambda m, x: globally(F.conv2d(x.reshape(-1, 16, 4, 4), torch.ones(4, 16, 1, 1)))),
            "moved between pixels and channels",
        ),
        (Calls(lambda m, x: globally(x.flip(0))), "mixes the images of a batch"),
        (Calls(lambda m, x: globally(x[:, :, 1:])), "crops a map"),
        (Calls(lambda m, x: F.dropout(x, 0.5)), "drops out in evaluation"),
        (
            Calls(lambda m, x: x if x.sum() > 0 else -x),
            "torch.export cannot trace Calls: its control flow depends on the numbers in a tensor",
        ),
        (Calls(lambda m, x: x), "the answer must be one vector per image"),
        (nn.Sequential(nn.Flatten()), "the answer must be one vector per image"),
        (Calls(lambda m, x: (x, x)), "the module must return one tensor, it returns tuple with 2"),  # type: ignore[arg-type, return-value]
        (Calls(lambda m, x: {"a": x}), "the module must return one tensor, it returns dict with 1"),  # type: ignore[arg-type, return-value]
        (nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect")), "padding_mode='reflect'"),
        (nn.Sequential(nn.AvgPool2d(2, divisor_override=3)), "divisor_override"),
        (nn.Sequential(nn.Linear(8, 3)), r"takes features \[N, F\]"),
        (
            nn.Sequential(nn.Flatten(), nn.Conv2d(4, 2, 1)),
            r"torch.export cannot trace layer '1' of Sequential: Expected 3D",
        ),
        (nn.Sequential(nn.Softmax(dim=2)), r"over channels \(dim=1\)"),
        (nn.Sequential(nn.BatchNorm2d(4, track_running_stats=False)), "no running statistics"),
        (nn.Sequential(nn.ZeroPad2d(-1)), "negative padding"),
        (nn.Sequential(nn.Conv2d(4, 4, 1)).double(), "float64, expected float32"),
        (nn.Sequential(nn.Conv2d(4, 4, 9)), "cannot trace layer '0' of Sequential: .*Kernel size can't be greater"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(module: nn.Module, message: str) -> None:
    with pytest.raises(ExportError, match=message):
        capture(module, SHAPE)


def test_weights_that_are_not_binary_are_refused() -> None:
    layer = BinaryConv2d(4, 4, 1)
    with torch.no_grad():
        layer.weight[0] = 0.5
    with pytest.raises(ExportError, match="layer '0': its weights are not exactly ±1"):
        capture(nn.Sequential(layer), SHAPE)


def test_a_broken_parameter_is_refused() -> None:
    layer = nn.Conv2d(4, 4, 1)
    with torch.no_grad():
        layer.weight[0] = torch.nan
    with pytest.raises(ExportError, match="NaN or infinity"):
        capture(nn.Sequential(layer, nn.AdaptiveAvgPool2d(1), nn.Flatten()), SHAPE)


@pytest.mark.parametrize("example", [(8, 8), (1, 2, 3, 4, 5), (0, 4, 4)])
def test_a_bad_example_is_refused(example: tuple[int, ...]) -> None:
    with pytest.raises(ExportError, match="expected an example of shape"):
        capture(nn.Identity(), example)


def test_preprocessing_must_fit_the_channels() -> None:
    with pytest.raises(ExportError, match="preprocessing needs 4 numbers"):
        capture(nn.Identity(), SHAPE, preprocessing={"scale": [1.0] * 3, "offset": [0.0] * 3})


def test_a_binary_layer_on_real_values_is_a_float_convolution_with_signs() -> None:
    network = nn.Sequential(BinaryConv2d(4, 6, 3, input_quantizer=None), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    op = capture(network, SHAPE).nodes[0].op
    assert isinstance(op, ops.Conv2d)
    assert op.binary
    assert set(np.unique(op.weight)) == {-1.0, 1.0}


def test_latent_weights_are_captured_by_their_sign() -> None:
    network = nn.Sequential(
        BinaryConv2d(4, 6, 3, latent=True), ChannelLayerNorm(6), nn.Flatten(), BinaryLinear(216, 5, latent=True)
    )
    captured = trace(network, SHAPE)
    assert differences(captured.graph, captured.tensors(IMAGES), IMAGES) == []
