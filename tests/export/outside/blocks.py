"""Networks of the binary literature, in the idioms of their public code."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from tests.export.outside.binarizers import (
    DorefaConv,
    Lambda,
    LearnableBias,
    ScaledConv,
    SignConv,
    StandardizedConv,
    clipped_sign,
    function_sign,
    identity_sign,
    mirrored_sign,
    nudged_sign,
    polynomial_sign,
    strict_sign,
)
from torch import Tensor, nn

from bitedge.train.nn import BinaryConv2d
from bitedge.train.nn.parameter import BinaryParameter
from bitedge.train.nn.quantize import ste_sign

Sign = Callable[[Tensor], Tensor]


class Stem(nn.Sequential):
    """A float convolution, so that what follows has real numbers to binarize."""

    def __init__(self, channels: int = 8, stride: int = 1) -> None:
        super().__init__(nn.Conv2d(3, channels, 3, stride, 1, bias=False), nn.BatchNorm2d(channels))


class Head(nn.Sequential):
    """Global average, flatten, dense."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 5))


class ReactBlock(nn.Module):
    """Shift, sign, scaled binary convolution, norm, shortcut, and PReLU between two shifts."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.move0, self.conv, self.norm = (
            LearnableBias(channels),
            ScaledConv(channels, channels),
            nn.BatchNorm2d(channels),
        )
        self.move1, self.act, self.move2 = LearnableBias(channels), nn.PReLU(channels), LearnableBias(channels)

    def forward(self, x: Tensor) -> Tensor:
        out = self.norm(self.conv(polynomial_sign(self.move0(x))))
        return self.move2(self.act(self.move1(out + x)))  # type: ignore[no-any-return]


class SignBlock(nn.Module):
    """A residual block: any sign, any binary convolution, any order."""

    def __init__(self, sign: Sign, conv: nn.Module, channels: int = 8, act: nn.Module | None = None) -> None:
        super().__init__()
        self.sign, self.conv, self.norm, self.act = sign, conv, nn.BatchNorm2d(channels), act or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        out = self.norm(self.conv(self.sign(x)))
        out += x
        return self.act(out)  # type: ignore[no-any-return]


class PreActivation(nn.Module):
    """norm, ReLU in place, convolution, twice; the shortcut is the activated input, as in-place code really has it."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.relu = nn.ReLU(inplace=True)
        self.norm1, self.conv1 = nn.BatchNorm2d(channels), SignConv(channels, channels, 3, padding=1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(channels), nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(x)
        out = self.conv1(function_sign(self.norm1(out)))
        out = self.conv2(self.relu(self.norm2(out)))
        return out + x  # type: ignore[no-any-return]  # x was changed in place


class DenseBlock(nn.Module):
    """BinaryDenseNet: every layer's output is concatenated to all before it."""

    def __init__(self, channels: int = 8, growth: int = 4, layers: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(channels + i * growth),
                Lambda(torch.sign),
                SignConv(channels + i * growth, growth, 3, padding=1, bias=False),
            )
            for i in range(layers)
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.cat([x, layer(x)], dim=1)
        return x


class Improvement(nn.Module):
    """MeliusNet: the newest channels are improved by a residual, the others pass."""

    def __init__(self, channels: int = 20, newest: int = 4) -> None:
        super().__init__()
        self.newest = newest
        self.norm, self.conv = nn.BatchNorm2d(channels), SignConv(channels, newest, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        better = self.conv(mirrored_sign(self.norm(x)))
        return torch.cat((x[:, : -self.newest], x[:, -self.newest :] + better), 1)


class OwnBinaryParameter(nn.Module):
    """A user's own layer with bitedge's ±1 parameter and sign."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.weight = BinaryParameter(torch.where(torch.randn(channels, channels, 3, 3) >= 0, 1.0, -1.0))
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(F.conv2d(ste_sign(x), self.weight, padding=1))  # type: ignore[no-any-return]


class Hardtanh(nn.Sequential):
    """The commonest form of all: convolution, norm, hardtanh, and the sign in the next layer."""

    def __init__(self) -> None:
        layers: list[nn.Module] = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Hardtanh(inplace=True)]
        for _ in range(2):
            layers += [
                Lambda(function_sign),
                SignConv(8, 8, 3, padding=1),
                nn.BatchNorm2d(8),
                nn.Hardtanh(inplace=True),
            ]
        super().__init__(
            *layers,
            nn.MaxPool2d(2),
            nn.Flatten(),
            Lambda(function_sign),
            SignLinear(8 * 5 * 5, 16),
            nn.BatchNorm1d(16),
            nn.Linear(16, 5),
        )


class SignLinear(nn.Linear):
    """torch's own layer, with the sign of its weight."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, torch.where(self.weight >= 0, 1.0, -1.0), self.bias)


class Thresholds(nn.Module):
    """Activations compared with a learned threshold per channel."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.threshold = nn.Parameter(torch.randn(channels, 1, 1) * 0.3)
        self.conv, self.norm = SignConv(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        bits = torch.where(x >= self.threshold, 1.0, -1.0)
        return self.norm(self.conv(bits)) + x  # type: ignore[no-any-return]


class LearnedScale(nn.Module):
    """Scales learned per channel on either side of a binary convolution."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.before = nn.Parameter(torch.rand(1, channels, 1, 1) + 0.5)
        self.after = nn.Parameter(torch.randn(channels, 1, 1))
        self.conv = BinaryConv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.after * self.conv(x * self.before) - 0.5 + x  # type: ignore[no-any-return]


def chain(*layers: nn.Module, channels: int = 8, stem: bool = True) -> nn.Module:
    return nn.Sequential(*([Stem()] if stem else []), *layers, Head(channels))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "reactnet": lambda: chain(ReactBlock(8), ReactBlock(8)),
    "birealnet": lambda: chain(
        SignBlock(polynomial_sign, ScaledConv(8, 8)), SignBlock(polynomial_sign, ScaledConv(8, 8))
    ),
    "xnornet with scales": lambda: chain(nn.Hardtanh(), SignBlock(torch.sign, ScaledConv(8, 8)), nn.MaxPool2d(2)),
    "irnet": lambda: chain(SignBlock(function_sign, StandardizedConv(8, 8), act=nn.Hardtanh())),
    "binaryconnect function": lambda: chain(SignBlock(clipped_sign, SignConv(8, 8, 3, padding=1, bias=False))),
    "dorefa": lambda: chain(SignBlock(function_sign, DorefaConv(8, 8, 3, padding=1))),
    "identity straight-through": lambda: chain(SignBlock(identity_sign, SignConv(8, 8, 3, padding=1))),
    "strict sign": lambda: chain(
        SignBlock(strict_sign, SignConv(8, 8, 3, padding=1)),
        SignBlock(lambda x: F.max_pool2d(strict_sign(x), 3, 1, 1), ScaledConv(8, 8)),
    ),
    "nudged sign": lambda: chain(SignBlock(nudged_sign, ScaledConv(8, 8))),
    "grouped latent": lambda: chain(SignBlock(mirrored_sign, ScaledConv(8, 8, groups=4))),
    "hardtanh": Hardtanh,
    "densenet": lambda: chain(DenseBlock(), channels=20),
    "meliusnet": lambda: chain(DenseBlock(), Improvement(), channels=20),
    "pre-activation in place": lambda: chain(PreActivation(), PreActivation()),
    "own binary parameter": lambda: chain(OwnBinaryParameter(), OwnBinaryParameter()),
    "thresholds per channel": lambda: chain(Thresholds(), Thresholds()),
    "learned scales": lambda: chain(LearnedScale()),
}
