"""What several networks share: float convolutions and poolings for maps of a known size, and the dense end.

torch's own layers pad symmetrically. TensorFlow's `same` puts the odd pixel of a strided layer at the bottom and right;
here that is a `ZeroPad2d` before the convolution, or `ceil_mode` in the pooling, so that only stock layers are used.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from torch import nn

from bitedge.train.errors import TrainError
from bitedge.train.nn import BinaryLayer
from bitedge.train.nn.window import same_pads

MOBILENET_WIDTHS = (2, 4, 4, 8, 8, 16, 16, 16, 16, 16, 16, 32, 32)
"""Channels behind each block of MobileNetV1, in widths; a change (but the first) halves the map."""


def check_positive(**sizes: int) -> None:
    """Refuse a size below 1, by its name."""
    for name, value in sizes.items():
        if value < 1:
            raise TrainError(f"{name} must be positive, got {value}")


def mobilenet_plan(width: int, size: int) -> Iterator[tuple[int, int, int, bool]]:
    """Yield channels in and out, the size of the map and whether it is halved, for each block of MobileNetV1."""
    channels = width
    for index, widths in enumerate(MOBILENET_WIDTHS):
        out = widths * width
        halve = index > 0 and out != channels
        yield channels, out, size, halve
        channels, size = out, halved(size) if halve else size


def classifier(channels: int, num_classes: int) -> OrderedDict[str, nn.Module]:
    """Return the end of a network, by name: the mean of each channel and a float dense layer."""
    return OrderedDict(pool=nn.AdaptiveAvgPool2d(1), flatten=nn.Flatten(), dense=nn.Linear(channels, num_classes))


def float_conv(
    in_channels: int, out_channels: int, kernel: int, stride: int, size: int, *, tf_same: bool
) -> Iterator[tuple[str, nn.Module]]:
    """Yield, with their names, the layers of a convolution without bias to a map of `ceil(size / stride)` pixels."""
    before, after = same_pads(size, kernel, stride) if tf_same else (kernel // 2, kernel // 2)
    if before != after:
        yield "pad", nn.ZeroPad2d((before, after, before, after))
    padding = before if before == after else 0
    yield "conv", nn.Conv2d(in_channels, out_channels, kernel, stride, padding, bias=False)


def same_max_pool(size: int, *, tf_same: bool) -> nn.MaxPool2d:
    """Return a 3x3 max-pool of stride 2 whose output has `ceil(size / 2)` pixels."""
    if tf_same and same_pads(size, 3, 2) == (0, 1):
        return nn.MaxPool2d(3, 2, ceil_mode=True)
    return nn.MaxPool2d(3, 2, padding=1)


def half_avg_pool(size: int) -> nn.AvgPool2d:
    """Return a 2x2 mean of stride 2 whose output has `ceil(size / 2)` pixels; an odd border averages what is there."""
    return nn.AvgPool2d(2, ceil_mode=size % 2 == 1, count_include_pad=False)


def halved(size: int, stride: int = 2) -> int:
    """Return `ceil(size / stride)`."""
    return -(-size // stride)


def valid_pooled(size: int) -> int:
    """Return the size of a map after a 3x3 pooling of stride 2 without padding."""
    return (size - 3) // 2 + 1


def conv_shortcut(in_channels: int, out_channels: int, size: int) -> nn.Sequential:
    """Return the shortcut of a halved map: a 2x2 mean, a float 1x1 convolution and a BatchNorm."""
    return nn.Sequential(
        OrderedDict(
            pool=half_avg_pool(size),
            conv=nn.Conv2d(in_channels, out_channels, 1, bias=False),
            norm=nn.BatchNorm2d(out_channels),
        )
    )


def initialize(module: nn.Module) -> None:
    """Draw trained real weights at the scale of their inputs; ±1 weights keep the sign that they were born with."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            if layer.weight.requires_grad:
                nn.init.xavier_normal_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        elif isinstance(layer, BinaryLayer) and layer.latent:
            nn.init.xavier_normal_(layer.weight)
