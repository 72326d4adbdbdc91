"""The float networks that a user would pick instead of a binary one: MobileNetV1 to V3 and EfficientNet-Lite0.

Howard et al., https://arxiv.org/abs/1704.04861; Sandler et al., https://arxiv.org/abs/1801.04381; Howard et al.,
https://arxiv.org/abs/1905.02244; Tan and Le, https://arxiv.org/abs/1905.11946 in its Lite form, which has ReLU6 and no
squeeze-and-excitation. They are measured with random weights, and are no part of `bitedge.train.models`.
"""

from __future__ import annotations

from torch import Tensor, nn

V1_BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))
"""Channels and stride of each block of MobileNetV1."""

_FIRST = ((3, 1, 16, 1, 1), (3, 6, 24, 2, 2))
_LAST = (3, 6, 320, 1, 1)
V2_STAGES = (*_FIRST, (3, 6, 32, 3, 2), (3, 6, 64, 4, 2), (3, 6, 96, 3, 1), (3, 6, 160, 3, 2), _LAST)
LITE0_STAGES = (*_FIRST, (5, 6, 40, 2, 2), (3, 6, 80, 3, 2), (5, 6, 112, 3, 1), (5, 6, 192, 4, 2), _LAST)
"""Kernel, expansion, channels, blocks and stride of each stage."""

V3_BLOCKS = (
    (3, 16, 16, False, False, 1),
    (3, 64, 24, False, False, 2),
    (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2),
    (5, 120, 40, True, False, 1),
    (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2),
    (3, 200, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 480, 112, True, True, 1),
    (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2),
    (5, 960, 160, True, True, 1),
    (5, 960, 160, True, True, 1),
)
"""Kernel, hidden channels, channels, whether there is a gate, whether hardswish stands for ReLU, and stride."""


def convolution(
    in_channels: int, out_channels: int, kernel: int, stride: int = 1, *, groups: int = 1, act: nn.Module | None = None
) -> nn.Sequential:
    """Return a convolution without bias, a BatchNorm and an activation."""
    layers = [
        nn.Conv2d(in_channels, out_channels, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(out_channels),
    ]
    return nn.Sequential(*layers, *([act] if act else []))


class Gate(nn.Module):
    """Squeeze and excitation with a hard sigmoid."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        few = (channels // 4 + 4) // 8 * 8
        few += 8 if few < 0.9 * channels / 4 else 0
        self.layers = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, few, 1),
            nn.ReLU(),
            nn.Conv2d(few, channels, 1),
            nn.Hardsigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the gated map."""
        out: Tensor = x * self.layers(x)
        return out


class Inverted(nn.Module):
    """A 1x1 convolution to more channels, a depthwise one, perhaps a gate, a 1x1 one to few, and the sum."""

    def __init__(
        self,
        in_channels: int,
        hidden: int,
        out_channels: int,
        *,
        kernel: int,
        stride: int,
        act: type[nn.Module],
        gate: bool = False,
    ) -> None:
        super().__init__()
        layers = [convolution(in_channels, hidden, 1, act=act())] if hidden != in_channels else []
        layers.append(convolution(hidden, hidden, kernel, stride, groups=hidden, act=act()))
        if gate:
            layers.append(nn.Sequential(Gate(hidden)))
        layers.append(convolution(hidden, out_channels, 1))
        self.layers = nn.Sequential(*layers)
        self.adds = stride == 1 and in_channels == out_channels

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        out: Tensor = self.layers(x)
        return out + x if self.adds else out


def mobilenet_v1() -> nn.Sequential:
    """Return MobileNetV1 1.0."""
    layers, channels = [convolution(3, 32, 3, 2, act=nn.ReLU6())], 32
    for out, stride in V1_BLOCKS:
        layers.append(convolution(channels, channels, 3, stride, groups=channels, act=nn.ReLU6()))
        layers.append(convolution(channels, out, 1, act=nn.ReLU6()))
        channels = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


def _staged(stages: tuple[tuple[int, ...], ...]) -> nn.Sequential:
    layers: list[nn.Module] = [convolution(3, 32, 3, 2, act=nn.ReLU6())]
    channels = 32
    for kernel, expansion, out, count, first_stride in stages:
        for index in range(count):
            stride = first_stride if index == 0 else 1
            hidden = expansion * channels
            layers.append(Inverted(channels, hidden, out, kernel=kernel, stride=stride, act=nn.ReLU6))
            channels = out
    layers.append(convolution(channels, 1280, 1, act=nn.ReLU6()))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000))


def mobilenet_v2() -> nn.Sequential:
    """Return MobileNetV2 1.0."""
    return _staged(V2_STAGES)


def efficientnet_lite0() -> nn.Sequential:
    """Return EfficientNet-Lite0."""
    return _staged(LITE0_STAGES)


def mobilenet_v3_large() -> nn.Sequential:
    """Return MobileNetV3-Large 1.0."""
    layers: list[nn.Module] = [convolution(3, 16, 3, 2, act=nn.Hardswish())]
    channels = 16
    for kernel, hidden, out, gate, hard, stride in V3_BLOCKS:
        act = nn.Hardswish if hard else nn.ReLU
        layers.append(Inverted(channels, hidden, out, kernel=kernel, stride=stride, act=act, gate=gate))
        channels = out
    layers.append(convolution(channels, 960, 1, act=nn.Hardswish()))
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(960, 1280), nn.Hardswish(), nn.Linear(1280, 1000)]
    return nn.Sequential(*layers)
