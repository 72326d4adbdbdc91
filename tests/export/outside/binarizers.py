"""Binarization as public code writes it: none of it imports bitedge."""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class SignFunction(torch.autograd.Function):
    """A sign inside an autograd function, zeros overwritten in place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        out = x.sign()
        out[out == 0] = 1
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return cast(Tensor, grads[0] * (x.abs() <= 1))


def function_sign(x: Tensor) -> Tensor:
    return cast(Tensor, SignFunction.apply(x))  # type: ignore[no-untyped-call]


def polynomial_sign(x: Tensor) -> Tensor:
    """The sign of Bi-Real Net: a piecewise polynomial carries the gradient."""
    forward = torch.where(x >= 0, 1.0, -1.0)
    low, middle, high = x < -1, x < 0, x < 1
    out1 = -1 * low.type(torch.float32) + (x * x + 2 * x) * (1 - low.type(torch.float32))
    out2 = out1 * middle.type(torch.float32) + (-x * x + 2 * x) * (1 - middle.type(torch.float32))
    out3 = out2 * high.type(torch.float32) + 1 * (1 - high.type(torch.float32))
    return forward.detach() - out3.detach() + out3


def clipped_sign(x: Tensor) -> Tensor:
    """A straight-through sign with clamp as its surrogate."""
    clipped = torch.clamp(x, -1.0, 1.0)
    return (function_sign(x) - clipped).detach() + clipped


def identity_sign(x: Tensor) -> Tensor:
    """A straight-through sign, the input itself as its surrogate; a comparison, cast and doubled."""
    return x + (2 * (x >= 0).float() - 1 - x).detach()


def strict_sign(x: Tensor) -> Tensor:
    """A sign that is -1 at 0."""
    return torch.where(x > 0, torch.ones_like(x), -torch.ones_like(x))


def mirrored_sign(x: Tensor) -> Tensor:
    """A sign that compares from the other side."""
    return torch.where(x < 0, torch.full_like(x, -1.0), torch.full_like(x, 1.0))


def nudged_sign(x: Tensor) -> Tensor:
    """A sign of a sign, so that zeros become +1."""
    return x.sign().add(0.01).sign()


class ScaledConv(nn.Module):
    """A convolution with latent weights, binarized and scaled by their mean magnitude per output channel."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.stride, self.padding, self.groups = stride, kernel // 2, groups
        self.weight = nn.Parameter(torch.randn(outputs, inputs // groups, kernel, kernel) * 0.1)

    def binary(self) -> Tensor:
        scale = self.weight.abs().mean((1, 2, 3), keepdim=True).detach()
        hard = scale * torch.sign(self.weight)
        soft = torch.clamp(self.weight, -1.0, 1.0)
        return hard.detach() - soft.detach() + soft

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.binary(), stride=self.stride, padding=self.padding, groups=self.groups)


class StandardizedConv(ScaledConv):
    """Weights standardized before the sign, and scaled by a power of two."""

    def binary(self) -> Tensor:
        centred = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        unit = centred / centred.flatten(1).std(1).view(-1, 1, 1, 1)
        scale = torch.pow(2.0, (torch.log(unit.abs().mean((1, 2, 3), keepdim=True)) / 0.6931471805599453).round())
        return function_sign(unit) * scale.detach()


class SignConv(nn.Conv2d):
    """torch's own layer, with the sign of its weight, and its bias."""

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight.sign(), self.bias, self.stride, self.padding, self.dilation, self.groups)


class DorefaConv(nn.Conv2d):
    """One bit, DoReFa: sign(w / E)·E with one E for the whole layer."""

    def forward(self, x: Tensor) -> Tensor:
        mean = self.weight.abs().mean().detach()
        binary = (self.weight / mean).sign() * mean
        return cast(Tensor, self._conv_forward(x, self.weight + (binary - self.weight).detach(), self.bias))


class LearnableBias(nn.Module):
    """A shift per channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(1, channels, 1, 1) * 0.3)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.bias.expand_as(x)


class Lambda(nn.Module):
    """A function as a layer."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.function(x))
