"""Binarization: exact values, and the slope of each surrogate gradient against its formula."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bitedge.train.errors import TrainError
from bitedge.train.nn.quantize import QUANTIZERS, approx_sign, quantizer, ste_sign, swish_sign

TINY = torch.finfo(torch.float32).tiny


def slope(function: Callable[[Tensor], Tensor], values: list[float], dtype: torch.dtype = torch.float32) -> list[float]:
    x = torch.tensor(values, dtype=dtype, requires_grad=True)
    function(x).sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    return [float(g) for g in x.grad]


@pytest.mark.parametrize("name", QUANTIZERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_sign_is_exact_and_zero_is_positive(name: str, dtype: torch.dtype) -> None:
    x = torch.tensor([0.0, -0.0, 1e-3, -1e-3, 7.0, -7.0, math.inf, -math.inf], dtype=dtype)
    y = QUANTIZERS[name](x)
    assert y.dtype == dtype
    assert y.tolist() == [1, 1, 1, -1, 1, -1, 1, -1]


@pytest.mark.parametrize("name", QUANTIZERS)
def test_denormal_numbers_keep_their_sign(name: str) -> None:
    x = torch.tensor([TINY / 4, -TINY / 4])
    assert QUANTIZERS[name](x).tolist() == [1, -1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_ste_mask_includes_the_limit_and_nothing_beyond(dtype: torch.dtype) -> None:
    above = 1.0 + torch.finfo(dtype).eps
    values = [0.0, 0.5, -0.5, 1.0, -1.0, above, -above, 3.0, -3.0]
    assert slope(ste_sign, values, dtype) == [1, 1, 1, 1, 1, 0, 0, 0, 0]


@pytest.mark.parametrize("clip", [0.3, 1.25, 2.0, 3.7])
def test_ste_mask_is_inclusive_at_any_limit(clip: float) -> None:
    limit = torch.tensor(clip)
    above = torch.nextafter(limit, torch.tensor(math.inf))
    values = [float(limit), -float(limit), float(above), -float(above)]
    assert slope(lambda x: ste_sign(x, float(limit)), values) == [1, 1, 0, 0]


def test_ste_without_clip_passes_everything() -> None:
    assert slope(lambda x: ste_sign(x, math.inf), [1e30, -1e30, 0.0]) == [1, 1, 1]


def test_approx_sign_slope_is_a_triangle() -> None:
    values = [0.0, 0.25, -0.25, 0.75, 1.0, -1.0, 1.5, -9.0]
    assert slope(approx_sign, values) == [2, 1.5, 1.5, 0.5, 0, 0, 0, 0]


@pytest.mark.parametrize("beta", [1.0, 5.0, 10.0])
def test_swish_sign_slope_follows_its_formula(beta: float) -> None:
    values = [0.0, 0.1, -0.1, 0.4, -1.3, 2.0]
    expected = [beta * (2 - beta * x * math.tanh(beta * x / 2)) / (1 + math.cosh(beta * x)) for x in values]
    assert slope(lambda x: swish_sign(x, beta), values) == pytest.approx(expected, rel=1e-5, abs=1e-7)


def test_swish_sign_slope_is_finite_far_out() -> None:
    assert slope(swish_sign, [1e4, -1e4]) == [0, 0]


@pytest.mark.parametrize("name", QUANTIZERS)
def test_gradient_is_multiplied_not_replaced(name: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(64).clamp(-0.9, 0.9).requires_grad_()
    weights = torch.randn(64)
    (QUANTIZERS[name](x) * weights).sum().backward()  # type: ignore[no-untyped-call]
    ones = slope(QUANTIZERS[name], x.tolist())
    assert x.grad is not None
    torch.testing.assert_close(x.grad, weights * torch.tensor(ones))


@pytest.mark.parametrize("name", QUANTIZERS)
def test_memory_layout_is_kept(name: str) -> None:
    x = torch.randn(2, 4, 3, 5).contiguous(memory_format=torch.channels_last)
    assert QUANTIZERS[name](x).stride() == x.stride()


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(TrainError, match="clip must be positive"):
        ste_sign(torch.zeros(1), 0.0)
    with pytest.raises(TrainError, match="beta must be positive"):
        swish_sign(torch.zeros(1), -1.0)
    with pytest.raises(TrainError, match="unknown quantizer 'stes'; expected one of ste, approx, swish"):
        quantizer("stes")
