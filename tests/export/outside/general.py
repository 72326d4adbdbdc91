"""Networks in the idioms of general torch code, with binary layers in them."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from tests.export.outside.binarizers import Lambda, SignConv, function_sign
from tests.export.outside.blocks import Head, SignBlock, SignLinear, Stem, chain
from torch import Tensor, nn

from bitedge.train.models import BiRealNet18
from bitedge.train.nn import BinaryConv2d, ChannelLayerNorm


def conv_norm(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(outputs)
    )


class Separable(nn.Sequential):
    """MobileNet: depthwise and pointwise, each with ReLU6."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__(
            conv_norm(inputs, inputs, 3, stride, inputs),
            nn.ReLU6(inplace=True),
            conv_norm(inputs, outputs, 1),
            nn.ReLU6(inplace=True),
        )


class SqueezeExcite(nn.Module):
    """A gate per channel from the global average."""

    def __init__(self, channels: int, gate: nn.Module) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Sequential(nn.Linear(channels, 4), nn.ReLU(inplace=True), nn.Linear(4, channels), gate)

    def forward(self, x: Tensor) -> Tensor:
        b, c, _, _ = x.size()
        y = self.fc(self.pool(x).view(b, c)).view(b, c, 1, 1)
        return x * y.expand_as(x)  # type: ignore[no-any-return]


class ConvGate(nn.Module):
    """The same gate with 1x1 convolutions and mean."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, 4, 1), nn.Conv2d(4, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        gate = F.hardsigmoid(self.up(F.silu(self.down(x.mean((2, 3), keepdim=True)))))
        return gate * x


class OptionA(nn.Module):
    """The CIFAR ResNet's shortcut without parameters: every second pixel, channels of zeros on either side."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = conv_norm(8, 16, stride=2), conv_norm(16, 16)
        self.shortcut = Lambda(lambda x: F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 4, 4), "constant", 0))

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv2(F.relu(self.conv1(x)))
        out += self.shortcut(x)
        return F.relu(out)


class Shuffle(nn.Module):
    """ShuffleNet: half of the channels pass, the other half is computed, then all are shuffled."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        half = channels // 2
        self.branch = nn.Sequential(conv_norm(half, half, 1), nn.ReLU(True), conv_norm(half, half, 3, groups=half))

    def forward(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, dim=1)
        out = torch.cat((left, self.branch(right)), 1)
        n, c, h, w = out.shape
        return out.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, -1, h, w)


class Shared(nn.Module):
    """One layer, used three times."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = BinaryConv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = self.norm(self.conv(x)) + x
        return x


class Branches(nn.Module):
    """Three branches, two activations, a sum of all and a difference."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = conv_norm(8, 8), conv_norm(8, 8, 1), BinaryConv2d(8, 8, 3, padding=1)
        self.act = nn.Hardswish(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        one, two = self.act(self.a(x)), torch.tanh(self.b(x))
        return sum([one, two, self.c(x)]) - x.mul(0.25)


class Skip(nn.Module):
    """A keyword with a default that no caller gives."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head, self.conv = Stem(), Head(), BinaryConv2d(8, 8, 3, padding=1)

    def forward(self, x: Tensor, skip: Tensor | None = None) -> Tensor:
        x = self.conv(self.stem(x))
        if skip is not None:
            x = x + skip
        return self.head(x)  # type: ignore[no-any-return]


class Functional(nn.Module):
    """Parameters and functions, no layers."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(8, 3, 3, 3) * 0.3)
        self.latent = nn.Parameter(torch.randn(8, 8, 3, 3))
        self.matrix = nn.Parameter(torch.randn(8, 5))
        self.register_buffer("mean", torch.randn(8))
        self.register_buffer("var", torch.rand(8) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu_(F.conv2d(x, self.kernel, padding="same"))
        x = F.batch_norm(x, self.mean, self.var)  # type: ignore[arg-type]
        x = F.conv2d(x.sign(), self.latent.sign(), stride=2)
        x = F.dropout(F.leaky_relu(x, 0.1), 0.5, self.training)
        return torch.amax(x, (2, 3)) @ self.matrix


class ConvNext(nn.Module):
    """Depthwise, LayerNorm and dense layers in NHWC, GELU, a layer scale."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.norm, self.up, self.down = (
            nn.LayerNorm(channels, eps=1e-6),
            nn.Linear(channels, 16),
            nn.Linear(16, channels),
        )
        self.gamma = nn.Parameter(torch.rand(channels))

    def forward(self, x: Tensor) -> Tensor:
        out = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        out = self.down(F.gelu(self.up(out)))
        return x + out.permute(0, 3, 1, 2) * self.gamma.view(1, -1, 1, 1)  # type: ignore[no-any-return]


class Both(nn.Module):
    """Global maximum and average side by side."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([F.adaptive_max_pool2d(x, 1), x.mean((2, 3), True)], 1).flatten(1)


def binary(inputs: int = 8, outputs: int = 8, stride: int = 1) -> nn.Sequential:
    conv = BinaryConv2d(inputs, outputs, 3, stride=stride, padding=1)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "mobilenet": lambda: chain(Separable(8, 12), Separable(12, 16, 2), binary(16, 16), channels=16),
    "squeeze and excite": lambda: chain(binary(), SqueezeExcite(8, nn.Sigmoid())),
    "gate by convolutions": lambda: chain(binary(), ConvGate(8)),
    "hardswish, gate": lambda: chain(nn.Hardswish(), binary(), SqueezeExcite(8, nn.Hardsigmoid())),
    "residual in place": lambda: chain(
        SignBlock(function_sign, SignConv(8, 8, 3, padding=1), act=nn.ReLU(inplace=True))
    ),
    "resnet20 option A": lambda: chain(OptionA(), binary(16, 16), channels=16),
    "shufflenet": lambda: chain(Shuffle(), binary(), Shuffle()),
    "shared three times": lambda: chain(Shared()),
    "three branches": lambda: chain(Branches()),
    "skip=None": Skip,
    "functional": Functional,
    "lambdas": lambda: chain(Lambda(lambda x: x * 2 - 1), binary(), Lambda(lambda x: x.clamp(-2, 2)), Lambda(F.relu6)),
    "convnext": lambda: chain(ConvNext(), binary()),
    "group norm, gelu": lambda: chain(binary(), nn.GroupNorm(4, 8), nn.GELU(), binary(), nn.GELU("tanh")),
    "layer norm over channels": lambda: chain(binary(), ChannelLayerNorm(8), binary()),
    "odd averages": lambda: chain(
        binary(),
        nn.AvgPool2d(2, ceil_mode=True, count_include_pad=False),
        binary(),
        nn.AvgPool2d(3, 2, 1, ceil_mode=True),
    ),
    "adaptive average": lambda: nn.Sequential(
        Stem(), binary(), nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(72, 5)
    ),
    "maximum and average": lambda: nn.Sequential(Stem(), binary(), Both(), nn.Linear(16, 5)),
    "strided slices": lambda: chain(binary(), Lambda(lambda x: x[:, ::2, ::2, ::2]), binary(4, 8)),
    "binary perceptron": lambda: nn.Sequential(
        nn.Flatten(),
        nn.Linear(300, 32),
        nn.BatchNorm1d(32),
        Lambda(torch.sign),
        SignLinear(32, 16),
        nn.BatchNorm1d(16),
        nn.Tanh(),
        nn.Linear(16, 5),
        nn.Softmax(1),
    ),
    "BiRealNet18 at 10 pixels": lambda: BiRealNet18(5, 8, image_size=10, stem_stride=1, stem_pool=False),
}
