"""The passes on pads, flattens, pixels, epilogues, casts and half weights: same meaning, fewer operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.export.small_networks import GRID, OFF_GRID
from torch import Tensor, nn

from bitedge.export import ExportError, lower
from bitedge.export.capture.capture import capture
from bitedge.export.ir import ops, reference
from bitedge.export.ir.graph import Graph, Kind, Node
from bitedge.export.ir.shapes import infer
from bitedge.export.lowering.flatten import absorb_flatten
from bitedge.export.lowering.half import halve_weights
from bitedge.export.lowering.pads import fold_pads
from bitedge.export.lowering.pixels import read_pixels
from bitedge.train.nn import BinaryConv2d, BinaryLinear, ChannelLayerNorm
from bitedge.train.nn.quantize import ste_sign

SHAPE = (4, 8, 8)
IMAGES = np.random.default_rng(0).normal(0, 1, (4, 8, 8, 4)).astype(np.float32)
HEAD = (nn.AdaptiveAvgPool2d(1), nn.Flatten())


def captured(*layers: nn.Module, shape: tuple[int, ...] = SHAPE, preprocessing: Any = None) -> Graph:
    torch.manual_seed(0)
    network = nn.Sequential(*layers)
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d | nn.BatchNorm1d):
            nn.init.normal_(layer.weight)
            nn.init.normal_(layer.bias)
    return capture(network, shape, preprocessing=preprocessing)


def names(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


def same(before: Graph, after: Graph, images: NDArray[Any] = IMAGES, *, tolerance: float = 0.0) -> None:
    """Both graphs give every value of a common name alike."""
    one, other = reference.evaluate(before, images), reference.evaluate(after, images)
    common = [name for name in other if name in one]
    assert after.output in common
    for name in common:
        want, got = one[name].reshape(len(images), -1), other[name].reshape(len(images), -1)
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=name)


class Signed(nn.Module):
    """The sign as a layer of its own."""

    def forward(self, x: Tensor) -> Tensor:
        """Binarize."""
        return ste_sign(x)


@pytest.mark.parametrize(
    "layers",
    [
        (nn.ZeroPad2d((1, 2, 0, 1)), nn.Conv2d(4, 3, 3)),
        (nn.ZeroPad2d(1), nn.ZeroPad2d((0, 1, 0, 0)), nn.Conv2d(4, 3, 3, padding=1)),
        (nn.ConstantPad2d((1, 2, 3, 0), 2.5), nn.Conv2d(4, 3, 3)),
        (nn.ConstantPad2d(1, -1.0), nn.Conv2d(4, 6, 3, groups=2, bias=False)),
        (nn.ZeroPad2d((1, 0, 1, 0)), BinaryConv2d(4, 5, 3)),
        (nn.ConstantPad2d(1, -3.0), BinaryConv2d(4, 5, 3, padding=1, pad_value=-1)),
        (Signed(), nn.ZeroPad2d((1, 0, 1, 0)), BinaryConv2d(4, 5, 3, input_quantizer=None)),
        (Signed(), nn.ConstantPad2d((1, 0, 1, 0), -1.0), BinaryConv2d(4, 5, 3, input_quantizer=None)),
        (nn.ReLU(), nn.ZeroPad2d(1), nn.MaxPool2d(3, 2)),
        (nn.ConstantPad2d(1, -torch.inf), nn.MaxPool2d(3, 2)),
        (Signed(), nn.ConstantPad2d(1, -1.0), nn.MaxPool2d(3, 2)),
        (nn.ZeroPad2d((0, 1, 0, 1)), nn.AvgPool2d(2)),
        (BinaryConv2d(4, 5, 3, padding=1, pad_value=-1, input_quantizer=None),),
    ],
    ids=str,
)
def test_padding_is_folded(layers: tuple[nn.Module, ...]) -> None:
    graph = captured(*layers, *HEAD)
    assert "pad" in names(graph)
    folded = fold_pads(graph)
    assert "pad" not in names(folded)
    same(graph, folded, tolerance=1e-5)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (
            (nn.ZeroPad2d(1), nn.MaxPool2d(3)),
            "layer '0': padding with 0 cannot be folded into '1' .*could take the padding",
        ),
        ((nn.ConstantPad2d(1, 1.0), nn.AvgPool2d(2)), "an average counts zeros only"),
        ((nn.ZeroPad2d(1), BinaryConv2d(4, 4, 3, padding=1, pad_value=-1)), "the outer padding is -1"),
        ((nn.ConstantPad2d(1, 1.0), nn.Conv2d(4, 4, 3, padding=1)), "a float layer is padded with one finite value"),
        ((nn.ZeroPad2d(1), nn.BatchNorm2d(4)), "only convolutions and poolings take padding"),
        ((nn.ZeroPad2d(1), nn.ConstantPad2d(1, 2.0), nn.Conv2d(4, 4, 3)), "the outer padding is 2"),
    ],
)
def test_padding_that_nothing_absorbs_is_refused(layers: tuple[nn.Module, ...], message: str) -> None:
    with pytest.raises(ExportError, match=message):
        fold_pads(captured(*layers, *HEAD))


def test_dense_after_flatten_is_a_convolution_over_the_map() -> None:
    graph = captured(nn.MaxPool2d(2), nn.Flatten(), BinaryLinear(64, 9), nn.BatchNorm1d(9), nn.Linear(9, 3))
    sunk = absorb_flatten(graph)
    assert names(sunk) == ["max_pool2d", "sign", "binary_conv2d", "batch_norm", "conv2d"]
    dense = sunk.nodes[2].op
    assert isinstance(dense, ops.BinaryConv2d)
    assert dense.window == ops.Window((4, 4))
    assert infer(sunk)["1.sign"].shape == (4, 4, 4)
    same(graph, sunk)


def test_flatten_sinks_through_what_is_elementwise() -> None:
    class Sums(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act, self.dense = nn.PReLU(), nn.Linear(256, 3)

        def forward(self, x: Tensor) -> Tensor:
            flat = torch.flatten(x, 1)
            answer: Tensor = self.dense(torch.relu(flat) + self.act(flat))
            return answer

    graph = captured(Sums())
    sunk = absorb_flatten(graph)
    assert names(sunk) == ["relu", "prelu", "add", "conv2d"]
    same(graph, sunk)


def test_a_norm_of_a_flattened_map_is_refused() -> None:
    with pytest.raises(
        ExportError, match=r"layer '1': batch_norm on a flattened map of 8x8x4 is not supported; put it"
    ):
        lower(captured(nn.Flatten(), nn.BatchNorm1d(256), nn.Linear(256, 3)))


PIXELS = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3), dtype=np.uint8)


@pytest.mark.parametrize("bias", [False, True])
def test_a_first_layer_of_signs_reads_pixels(bias: bool) -> None:
    conv = nn.Conv2d(3, 6, 3, padding=1, bias=bias)
    with torch.no_grad():
        conv.weight.copy_(conv.weight.sign())
    graph = captured(conv, nn.BatchNorm2d(6), BinaryConv2d(6, 4, 3), *HEAD, shape=(3, 8, 8), preprocessing=GRID)
    read = read_pixels(graph)
    assert names(read)[:2] == ["image_conv2d", "elementwise"]
    same(graph, read, PIXELS)
    lowered = lower(graph)
    first = ops.epilogue_of(lowered.nodes[0].op)
    assert lowered.nodes[0].op.name == "image_conv2d"
    assert isinstance(first, ops.Threshold)
    same(graph, lowered, PIXELS)


@pytest.mark.parametrize(
    ("preprocessing", "layer"),
    [
        (OFF_GRID, BinaryConv2d(3, 4, 3, input_quantizer=None)),
        (GRID, nn.Conv2d(3, 4, 3)),
        (GRID, BinaryConv2d(3, 4, 3, padding=1, pad_value=1, input_quantizer=None)),
    ],
)
def test_other_first_layers_stay_float(preprocessing: Any, layer: nn.Module) -> None:
    graph = captured(layer, *HEAD, shape=(3, 8, 8), preprocessing=preprocessing)
    lowered = lower(graph)
    assert "image_conv2d" not in names(lowered)
    same(graph, lowered, PIXELS, tolerance=1e-5)


def test_residual_block_becomes_one_epilogue_with_floats_and_bits() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = BinaryConv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)

        def forward(self, x: Tensor) -> Tensor:
            total: Tensor = self.norm(self.conv(x)) + x
            return total

    graph = captured(Block(), Block(), nn.PReLU(4), BinaryConv2d(4, 3, 1), *HEAD)
    lowered = lower(graph)
    assert names(lowered) == ["elementwise", "binary_conv2d", "binary_conv2d", "binary_conv2d", "avg_pool2d"]
    first, second = (ops.epilogue_of(node.op) for node in lowered.nodes[1:3])
    assert isinstance(first, ops.Affine)
    assert isinstance(second, ops.Affine)
    assert (first.emit, second.emit, second.activation) == ("float+bits", "bits", "prelu")
    assert lowered.nodes[1].outputs == ("add", "add.sign")
    assert lowered.nodes[1].inputs == ("image.sign", "image")
    same(graph, lowered)


def test_steps_in_another_order_are_steps_of_one_epilogue() -> None:
    graph = captured(BinaryConv2d(4, 5, 1), nn.ReLU(), nn.BatchNorm2d(5), *HEAD)
    lowered = lower(graph)
    assert names(lowered) == ["elementwise", "binary_conv2d", "avg_pool2d"]
    assert isinstance(ops.epilogue_of(lowered.nodes[1].op), ops.Steps)
    same(graph, lowered)


def test_layer_norm_stays_float() -> None:
    graph = captured(BinaryConv2d(4, 5, 1), nn.MaxPool2d(2), ChannelLayerNorm(5), BinaryConv2d(5, 3, 1), *HEAD)
    lowered = lower(graph)
    assert "layer_norm" in names(lowered)
    assert all(isinstance(ops.epilogue_of(n.op), ops.Affine) for n in lowered.nodes if n.op.name == "binary_conv2d")
    same(graph, lowered)


def test_relu_between_norm_and_float_dense() -> None:
    """The end of XnorNet."""
    graph = captured(BinaryConv2d(4, 6, 8), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(6, 3, bias=False))
    lowered = lower(graph)
    assert names(lowered) == ["elementwise", "binary_conv2d", "conv2d"]
    epilogue = ops.epilogue_of(lowered.nodes[1].op)
    assert isinstance(epilogue, ops.Affine)
    assert epilogue.activation == "relu"
    same(graph, lowered)


def test_the_bias_of_a_float_convolution_joins_the_norm() -> None:
    graph = captured(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), *HEAD)
    lowered = lower(graph)
    assert names(lowered) == ["conv2d", "avg_pool2d"]
    same(graph, lowered, tolerance=1e-5)


def test_bits_are_cast_for_float_layers_and_for_the_answer() -> None:
    graph = captured(Signed(), nn.AvgPool2d(8), Signed(), nn.Flatten())
    lowered = lower(graph)
    assert names(lowered) == ["elementwise", "elementwise", "avg_pool2d", "elementwise", "elementwise"]
    assert infer(lowered)[lowered.output].kind is Kind.FLOAT
    np.testing.assert_array_equal(reference.run(lowered, IMAGES), reference.run(graph, IMAGES))


def test_half_weights_round_only_float_layers() -> None:
    graph = lower(captured(nn.Conv2d(4, 6, 3), BinaryConv2d(6, 5, 3), nn.BatchNorm2d(5), *HEAD))
    halved = halve_weights(graph)
    for before, after in zip(graph.nodes, halved.nodes, strict=True):
        if isinstance(before.op, ops.Conv2d):
            assert isinstance(after.op, ops.Conv2d)
            assert after.op.weight.dtype == np.float16
            np.testing.assert_array_equal(after.op.weight, before.op.weight.astype(np.float16))
        else:
            assert after is before


def test_a_weight_beyond_half_precision_is_refused() -> None:
    weight = np.full((1, 1, 1, 4), 1e6, np.float32)
    graph = captured(nn.Conv2d(4, 1, 1), *HEAD)
    broken = graph.with_nodes([Node(ops.Conv2d(weight), ("image",), ("0",), "0"), *graph.nodes[1:]])
    with pytest.raises(ExportError, match="layer '0': a weight is beyond float16"):
        halve_weights(broken)
