"""Every operator of the reference interpreter against torch, which shares no code with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from bitedge.export.ir import ops, reference
from bitedge.export.ir.graph import Node

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(0, 1, (2, 7, 9, 6)).astype(np.float32)
WINDOWS = [
    ops.Window((3, 3)),
    ops.Window((3, 2), (2, 1), (1, 0, 2, 1)),
    ops.Window((2, 3), (1, 2), (2, 1, 0, 1), (2, 3)),
    ops.Window((1, 1), (3, 3)),
    ops.Window((7, 9)),
]


def meaning(op: ops.Op, *inputs: NDArray[Any]) -> list[NDArray[Any]]:
    names = tuple(f"i{n}" for n in range(len(inputs)))
    return reference.evaluate_node(Node(op, names, ("o",)), inputs)


def planes(x: NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(x.transpose(0, 3, 1, 2)).astype(np.float32))


def pixels(x: Tensor) -> NDArray[Any]:
    return x.numpy().transpose(0, 2, 3, 1)


def padded(x: NDArray[Any], window: ops.Window, value: float) -> Tensor:
    top, left, bottom, right = window.pads
    return F.pad(planes(x), (left, right, top, bottom), value=value)


@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize("window", WINDOWS)
def test_conv2d(window: ops.Window, groups: int) -> None:
    weight = RANDOM.normal(0, 1, (6, *window.kernel, 6 // groups)).astype(np.float32)
    window = ops.Window(window.kernel, window.stride, window.pads, window.dilation, groups)
    expected = F.conv2d(padded(X, window, 0), planes(weight), None, window.stride, 0, window.dilation, groups)
    np.testing.assert_allclose(meaning(ops.Conv2d(weight, window), X)[0], pixels(expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pad_value", [0, 1, -1])
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("window", WINDOWS)
def test_binary_conv2d(window: ops.Window, groups: int, pad_value: int) -> None:
    bits = reference.sign(X)
    weight = RANDOM.choice([-1, 1], (6, *window.kernel, 6 // groups)).astype(np.int8)
    window = ops.Window(window.kernel, window.stride, window.pads, window.dilation, groups)
    expected = F.conv2d(
        padded(bits, window, pad_value), planes(weight), None, window.stride, 0, window.dilation, groups
    )
    (acc,) = meaning(ops.BinaryConv2d(weight, window, pad_value), bits)
    assert acc.dtype == np.int32
    np.testing.assert_array_equal(acc, pixels(expected))


def test_image_conv2d() -> None:
    window = ops.Window((3, 3), (2, 2), (1, 1, 0, 0))
    image = RANDOM.integers(0, 256, (2, 8, 8, 3), dtype=np.uint8)
    weight = RANDOM.choice([-1, 1], (5, 3, 3, 3)).astype(np.int8)
    expected = F.conv2d(padded(2 * image.astype(np.float32) - 255, window, 0), planes(weight), stride=2)
    np.testing.assert_array_equal(meaning(ops.ImageConv2d(weight, window), image)[0], pixels(expected))


@pytest.mark.parametrize("window", [w for w in WINDOWS if max(w.dilation) == 1])
def test_pools(window: ops.Window) -> None:
    top, left, bottom, right = window.pads
    lowest = F.pad(planes(X), (left, right, top, bottom), value=-torch.inf)
    expected = F.max_pool2d(lowest, window.kernel, window.stride)
    np.testing.assert_array_equal(meaning(ops.MaxPool2d(window), X)[0], pixels(expected))
    counted = F.avg_pool2d(padded(X, window, 0), window.kernel, window.stride)
    np.testing.assert_allclose(meaning(ops.AvgPool2d(window, True), X)[0], pixels(counted), rtol=1e-5, atol=1e-6)


def test_avg_pool_that_counts_only_real_pixels() -> None:
    window = ops.Window((3, 3), (2, 2), (1, 1, 1, 1))
    expected = F.avg_pool2d(planes(X), 3, 2, 1, count_include_pad=False)
    np.testing.assert_allclose(meaning(ops.AvgPool2d(window, False), X)[0], pixels(expected), rtol=1e-5, atol=1e-6)


def test_max_pool_of_bits_takes_the_minimum_where_told() -> None:
    window = ops.Window((2, 2), (2, 2), (1, 0, 0, 1))
    bits = reference.sign(X)
    lowest = np.array([True, False, True, False, False, True])
    got = meaning(ops.MaxPool2d(window, lowest), bits)[0]
    top, left, bottom, right = window.pads
    for channel in range(6):
        fill = 2.0 if lowest[channel] else -2.0
        whole = F.pad(planes(bits), (left, right, top, bottom), value=fill)
        pooled = -F.max_pool2d(-whole, 2) if lowest[channel] else F.max_pool2d(whole, 2)
        np.testing.assert_array_equal(got[..., channel], pixels(pooled)[..., channel])


def test_norms_and_softmax() -> None:
    weight, bias = (RANDOM.normal(0, 1, 6).astype(np.float32) for _ in range(2))
    expected = F.layer_norm(torch.from_numpy(X), (6,), torch.from_numpy(weight), torch.from_numpy(bias), 1e-3)
    np.testing.assert_allclose(meaning(ops.LayerNorm(weight, bias, 1e-3), X)[0], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(meaning(ops.Softmax(), X)[0], F.softmax(torch.from_numpy(X), -1), rtol=1e-5, atol=1e-7)


def test_epilogue_steps_in_order() -> None:
    scale, bias, slope = (RANDOM.normal(0, 1, 6).astype(np.float32) for _ in range(3))
    residual = RANDOM.normal(0, 1, X.shape).astype(np.float32)
    op = ops.Elementwise(ops.Affine(scale, bias, "prelu", slope, "float+bits"))
    y, bits = meaning(op, X, residual)
    scaled = (X.astype(np.float64) * scale + bias).astype(np.float32) + residual
    expected = F.prelu(planes(scaled), torch.from_numpy(slope))
    np.testing.assert_array_equal(y, pixels(expected))
    np.testing.assert_array_equal(bits, np.where(pixels(expected) >= 0, 1, -1))


def test_sign_of_zeros() -> None:
    assert reference.sign(np.array([0.0, -0.0, -1e-40, np.nan], np.float32)).tolist() == [1, 1, -1, -1]


def test_flatten_and_pad() -> None:
    np.testing.assert_array_equal(meaning(ops.Flatten(), X)[0].ravel(), X.ravel())
    got = meaning(ops.Pad((1, 2, 3, 4), -1.5), X)[0]
    np.testing.assert_array_equal(got, pixels(F.pad(planes(X), (2, 4, 1, 3), value=-1.5)))
