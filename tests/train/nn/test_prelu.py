"""The quick PReLU against torch's own: the same bits forward, the same gradients."""

from __future__ import annotations

import pytest
import torch
from torch import fx, nn

from bitedge.train.nn.prelu import PReLU


@pytest.mark.parametrize("shape", [(5, 8, 4, 3), (7, 8)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_torch(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    ours, theirs = PReLU(8).to(dtype), nn.PReLU(8).to(dtype)
    with torch.no_grad():
        ours.weight.uniform_(-1, 1)
        theirs.weight.copy_(ours.weight)
    x = torch.randn(shape, dtype=dtype)
    x.view(-1)[::7] = 0.0
    grad = torch.randn(shape, dtype=dtype)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    outputs = [layer(value) for layer, value in zip((ours, theirs), inputs, strict=True)]
    for output in outputs:
        torch.autograd.backward(output, grad)
    assert torch.equal(*outputs)
    assert torch.equal(ours.eval()(x), outputs[1])
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad)
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)


def test_half_precision_under_autocast() -> None:
    layer = PReLU(8)
    x = torch.randn(64, 8, 6, 6).bfloat16().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        out = layer(x)
    torch.autograd.backward(out.float().square().sum())
    exact = x.detach().double().requires_grad_()
    slope = layer.weight.detach().double().requires_grad_()
    torch.autograd.backward(torch.nn.functional.prelu(exact, slope).square().sum())
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype == torch.float32
    assert slope.grad is not None
    torch.testing.assert_close(layer.weight.grad.double(), slope.grad, rtol=0.02, atol=0.5)


def test_evaluation_can_be_traced() -> None:
    traced = fx.symbolic_trace(nn.Sequential(PReLU(3)).eval())
    x = torch.randn(2, 3, 4, 4)
    assert torch.equal(traced(x), nn.PReLU(3)(x))
