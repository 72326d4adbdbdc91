"""Binary convolution against loops in numpy, for every padding value and rule."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from bitedge.train.errors import TrainError
from bitedge.train.nn import BinaryConv2d
from bitedge.train.nn.parameter import BinaryParameter, is_binary
from bitedge.train.nn.window import Padding


def naive(
    x: NDArray[np.float32],
    weight: NDArray[np.float32],
    pads: tuple[int, int, int, int],
    pad_value: int,
    stride: int,
    dilation: int,
    groups: int,
) -> NDArray[np.float32]:
    """Binarize, pad, then multiply tap by tap."""
    bits = np.where(x >= 0, 1.0, -1.0)
    top, left, bottom, right = pads
    padded = np.pad(bits, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=pad_value)
    batch, _, height, width = padded.shape
    out_channels, taps_in, kh, kw = weight.shape
    rows = (height - dilation * (kh - 1) - 1) // stride + 1
    columns = (width - dilation * (kw - 1) - 1) // stride + 1
    out = np.zeros((batch, out_channels, rows, columns))
    for o in range(out_channels):
        first = (o // (out_channels // groups)) * taps_in
        for i in range(rows):
            for j in range(columns):
                for dy in range(kh):
                    for dx in range(kw):
                        pixel = padded[
                            :, first : first + taps_in, i * stride + dy * dilation, j * stride + dx * dilation
                        ]
                        out[:, o, i, j] += pixel @ weight[o, :, dy, dx]
    return out.astype(np.float32)


CASES: list[tuple[Padding, tuple[int, int, int, int], int, int, int]] = [
    # padding, the pads it means on a 7x6 map, stride, dilation, groups
    (0, (0, 0, 0, 0), 1, 1, 1),
    (1, (1, 1, 1, 1), 1, 1, 1),
    ((2, 1), (2, 1, 2, 1), 1, 1, 1),
    ((0, 1, 2, 3), (0, 1, 2, 3), 1, 1, 1),
    ("tf_same", (1, 1, 1, 1), 1, 1, 1),
    ("tf_same", (1, 0, 1, 1), 2, 1, 1),
    ("tf_same", (2, 2, 2, 2), 1, 2, 1),
    (1, (1, 1, 1, 1), 2, 1, 2),
    (2, (2, 2, 2, 2), 1, 2, 4),
]


@pytest.mark.parametrize("pad_value", [0, 1, -1])
@pytest.mark.parametrize(("padding", "pads", "stride", "dilation", "groups"), CASES)
def test_forward_equals_the_naive_convolution(
    padding: Padding, pads: tuple[int, int, int, int], stride: int, dilation: int, groups: int, pad_value: int
) -> None:
    torch.manual_seed(3)
    layer = BinaryConv2d(4, 8, 3, stride, padding, dilation, groups, pad_value=pad_value)
    x = torch.randn(2, 4, 7, 6)
    x[0, 0, 0, 0], x[0, 1, 0, 0] = 0.0, -0.0
    assert layer.pads(7, 6) == pads
    expected = naive(x.numpy(), layer.binary_weight().numpy(), pads, pad_value, stride, dilation, groups)
    for layout in (torch.contiguous_format, torch.channels_last):
        assert np.array_equal(layer(x.contiguous(memory_format=layout)).detach().numpy(), expected)


def test_zero_and_one_padding_differ_only_at_the_border() -> None:
    torch.manual_seed(0)
    zero = BinaryConv2d(16, 4, 3, padding=1)
    one = copy.deepcopy(zero)
    one.pad_value = 1
    x = torch.randn(1, 16, 6, 6)
    difference = (zero(x) - one(x)).detach()
    assert torch.equal(difference[:, :, 1:-1, 1:-1], torch.zeros(1, 4, 4, 4))
    assert difference.abs().sum() > 0


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "expected"),
    # From the facts: TensorFlow's asymmetric cases.
    [(224, 7, 2, (2, 3)), (56, 3, 2, (0, 1)), (224, 11, 4, (3, 4)), (112, 3, 2, (0, 1)), (7, 3, 2, (1, 1))],
)
def test_tf_same_pads(size: int, kernel: int, stride: int, expected: tuple[int, int]) -> None:
    before, after = expected
    layer = BinaryConv2d(1, 1, kernel, stride, "tf_same")
    assert layer.pads(size, size) == (before, before, after, after)
    assert layer(torch.randn(1, 1, size, size)).shape[-1] == -(-size // stride)


def test_weight_starts_exactly_binary_and_balanced() -> None:
    torch.manual_seed(0)
    layer = BinaryConv2d(64, 64, 3)
    assert is_binary(layer.weight)
    assert set(layer.weight.unique().tolist()) == {-1.0, 1.0}  # type: ignore[no-untyped-call]
    assert abs(float(layer.weight.detach().mean())) < 0.02


def test_weight_gradient_is_the_plain_one() -> None:
    """No straight-through mask: at |w| = 1 and beyond the gradient is that of an ordinary convolution."""
    torch.manual_seed(0)
    layer = BinaryConv2d(4, 8, 3, padding=1)
    x = torch.randn(2, 4, 5, 5)
    seed = torch.randn(2, 8, 5, 5)
    (layer(x) * seed).sum().backward()
    plain = layer.binary_weight().requires_grad_()
    (F.conv2d(torch.where(x >= 0, 1.0, -1.0), plain, padding=1) * seed).sum().backward()  # type: ignore[no-untyped-call]
    assert layer.weight.grad is not None
    assert plain.grad is not None
    torch.testing.assert_close(layer.weight.grad, plain.grad)


def test_latent_weight_is_real_and_masked() -> None:
    torch.manual_seed(0)
    layer = BinaryConv2d(2, 3, 3, latent=True)
    with torch.no_grad():
        layer.weight[0, 0, 0, 0] = 1.5
        layer.weight[0, 0, 0, 1] = 0.0
    assert not is_binary(layer.weight)
    assert set(layer.binary_weight().unique().tolist()) == {-1.0, 1.0}  # type: ignore[no-untyped-call]
    layer(torch.randn(2, 2, 6, 6)).square().sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad[0, 0, 0, 0] == 0
    assert layer.weight.grad[0, 0, 0, 1] != 0


def test_without_quantizer_the_input_stays_real_and_gets_its_gradient() -> None:
    torch.manual_seed(0)
    layer = BinaryConv2d(3, 4, 3, input_quantizer=None)
    x = torch.randn(2, 3, 8, 8) * 3
    torch.testing.assert_close(layer(x), F.conv2d(x, layer.binary_weight()))


def test_dyadic_pixels_give_exact_sums_in_any_order() -> None:
    torch.manual_seed(0)
    layer = BinaryConv2d(3, 128, 3, input_quantizer=None)
    u = torch.randint(0, 256, (4, 3, 32, 32))
    out = layer(u.float() * (2 / 256) - 255 / 256).double() * 256
    exact = F.conv2d((2 * u - 255).double(), layer.binary_weight().double())
    assert torch.equal(out, exact)


def test_mark_and_value_survive_copy_device_and_state() -> None:
    layer = BinaryConv2d(3, 4, 3)
    for other in (copy.deepcopy(layer), copy.deepcopy(layer).to("cpu", torch.float64).to(torch.float32)):
        assert isinstance(other.weight, BinaryParameter)
        assert torch.equal(other.weight, layer.weight)
    fresh = BinaryConv2d(3, 4, 3)
    fresh.load_state_dict(layer.state_dict())
    assert is_binary(fresh.weight)
    assert torch.equal(fresh.weight, layer.weight)


def test_state_that_is_not_binary_is_refused() -> None:
    layer = BinaryConv2d(1, 1, 1)
    with pytest.raises(RuntimeError, match="weight must be exactly ±1"):
        layer.load_state_dict({"weight": torch.full((1, 1, 1, 1), 0.5)})
    latent = BinaryConv2d(1, 1, 1, latent=True)
    latent.load_state_dict({"weight": torch.full((1, 1, 1, 1), 0.5)})


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((3, 4, 3), {"groups": 2}, "multiples of groups"),
        ((0, 4, 3), {}, "positive multiples"),
        ((3, 4, 0), {}, "kernel_size must be positive"),
        ((3, 4, 3), {"stride": 0}, "stride must be positive"),
        ((3, 4, 3), {"pad_value": 2}, "pad_value must be -1, 0 or 1, got 2"),
        ((3, 4, 3), {"padding": -1}, "padding must be a non-negative int"),
        ((3, 4, 3), {"padding": (1, 2, 3)}, "padding must be"),
        ((3, 4, 3), {"padding": "same"}, "padding must be"),
        ((3, 4, 3), {"input_quantizer": "tanh"}, "unknown quantizer 'tanh'"),
    ],
)
def test_bad_arguments_are_refused(arguments: tuple[int, int, int], options: dict[str, Any], message: str) -> None:
    with pytest.raises(TrainError, match=message):
        BinaryConv2d(*arguments, **options)


def test_repr_names_every_setting() -> None:
    text = repr(BinaryConv2d(3, 4, 3, padding="tf_same", pad_value=1, input_quantizer="approx"))
    assert "padding='tf_same'" in text
    assert "pad_value=1" in text
    assert "input_quantizer='approx'" in text
