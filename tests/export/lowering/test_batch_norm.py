"""BatchNorm as torch rounds it: the reference, the affine epilogue and the thresholds all follow torch's own bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from bitedge.export.ir import ops, reference
from bitedge.export.ir.graph import Graph, Kind, Node, Value
from bitedge.export.lowering.arithmetic import batch_norm as torch_batch_norm
from bitedge.export.lowering.epilogues import make_epilogues
from bitedge.export.lowering.thresholds import find_thresholds


def random_norm(channels: int, seed: int, *, tiny: bool = False) -> ops.BatchNorm:
    random = np.random.default_rng(seed)
    scale = random.choice([1.0, -1.0, 0.0, 1e-30] if tiny else [1.0, -1.0], channels)

    def numbers(values: NDArray[Any]) -> NDArray[np.float32]:
        return values.astype(np.float32)

    return ops.BatchNorm(
        mean=numbers(random.normal(0, 20, channels)),
        variance=numbers(random.choice([1e-8, 1.0, 500.0], channels) * random.uniform(0.5, 2, channels)),
        weight=numbers(scale * random.uniform(0.1, 2, channels)),
        bias=numbers(random.normal(0, 2, channels)),
        eps=float(random.choice([1e-3, 1e-5])),
    )


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("channels", [1, 3, 16, 37, 64, 100])
def test_reference_has_torchs_bits_in_every_layout(channels: int, seed: int) -> None:
    norm = random_norm(channels, seed, tiny=True)
    layer = nn.BatchNorm2d(channels, eps=norm.eps).eval()
    with torch.no_grad():
        layer.running_mean.copy_(torch.from_numpy(norm.mean))  # type: ignore[union-attr]
        layer.running_var.copy_(torch.from_numpy(norm.variance))  # type: ignore[union-attr]
        layer.weight.copy_(torch.from_numpy(norm.weight))
        layer.bias.copy_(torch.from_numpy(norm.bias))
    x = np.random.default_rng(seed).integers(-600, 600, (3, 7, 5, channels)).astype(np.float32)
    planes = torch.from_numpy(np.ascontiguousarray(x.transpose(0, 3, 1, 2)))
    with torch.no_grad():
        plain = layer(planes).numpy().transpose(0, 2, 3, 1)
        pixels = layer(planes.contiguous(memory_format=torch.channels_last)).numpy().transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(reference.batch_norm(norm, x), plain)
    np.testing.assert_array_equal(pixels, plain)
    np.testing.assert_array_equal(torch_batch_norm(norm, x), plain)


def test_affine_epilogue_has_the_same_bits() -> None:
    norm = random_norm(50, 7)
    graph = Graph("g", Value("x", Kind.FLOAT, (4, 4, 50)), (Node(norm, ("x",), ("y",)),), "y")
    x = np.random.default_rng(1).integers(-600, 600, (2, 4, 4, 50)).astype(np.float32)
    lowered = make_epilogues(graph)
    assert isinstance(lowered.nodes[0].op, ops.Elementwise)
    np.testing.assert_array_equal(reference.evaluate(lowered, x)["y"], torch_batch_norm(norm, x))


def test_thresholds_are_those_of_the_reference_too() -> None:
    random = np.random.default_rng(3)
    weight = random.choice([-1, 1], (70, 3, 3, 20)).astype(np.int8)
    norm = random_norm(70, 5, tiny=True)
    nodes = (
        Node(ops.BinaryConv2d(weight, ops.Window((3, 3))), ("x",), ("acc",)),
        Node(norm, ("acc",), ("y",)),
        Node(ops.Sign(), ("y",), ("bits",)),
    )
    graph = Graph("g", Value("x", Kind.BITS, (5, 5, 20)), nodes, "bits")
    (node,) = find_thresholds(graph).nodes
    epilogue = ops.epilogue_of(node.op)
    assert isinstance(epilogue, ops.Threshold)
    acc = np.repeat(np.arange(-180, 181, dtype=np.int32)[:, None], 70, axis=1)
    by_numpy = reference.batch_norm(norm, acc) >= 0
    count = by_numpy.sum(axis=0)
    np.testing.assert_array_equal(epilogue.threshold, np.where(count == len(acc), -181, 181 - count))


def test_an_overflowing_scale_is_refused() -> None:
    norm = replace(random_norm(2, 0), variance=np.zeros(2, np.float32), eps=1e-30, weight=np.full(2, 3e38, np.float32))
    graph = Graph("g", Value("x", Kind.FLOAT, (1, 1, 2)), (Node(norm, ("x",), ("y",), "norm"),), "y")
    with np.errstate(all="ignore"), pytest.raises(ValueError, match="layer 'norm': its scale or bias overflows"):
        make_epilogues(graph)
