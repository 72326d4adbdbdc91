"""The two networks for 32x32 images that most papers on binary weights report: ResNet-20 and VGG-Small.

ResNet-20 is He et al.'s (https://arxiv.org/abs/1512.03385) with a shortcut around every convolution, as in Bi-Real Net;
VGG-Small is that of LQ-Nets (Zhang et al., https://arxiv.org/abs/1807.10029). The first and last layers are float.
"""

from __future__ import annotations

from collections import OrderedDict

import torch.nn.functional as F
from torch import Tensor, nn

from bitedge.train.errors import TrainError
from bitedge.train.models.blocks import check_positive, classifier, initialize
from bitedge.train.nn import BinaryConv2d

DEPTH = 6
"""Binary convolutions of each of the three stages of ResNet-20."""

VGG_SMALL = ((1, False), (1, True), (2, False), (2, True), (4, False), (4, True))
"""Channels of the six convolutions, in widths, and whether a 2x2 max-pool follows."""


def check(num_classes: int, width: int, in_channels: int, image_size: int) -> None:
    """Refuse sizes that make no network."""
    check_positive(num_classes=num_classes, width=width, in_channels=in_channels)
    if image_size < 8 or image_size % 8:
        raise TrainError(f"image_size must be a multiple of 8, since maps are halved, got {image_size}")


class ResNet20Block(nn.Module):
    """Binary 3x3 convolution, BatchNorm, the sum with the shortcut, hardtanh.

    When the map is halved, the shortcut is a 2x2 mean with zeros for the new channels: it has no weights.
    """

    def __init__(
        self, in_channels: int, out_channels: int, *, halve: bool, quantizer: str, pad_value: int, latent: bool
    ) -> None:
        super().__init__()
        self.conv = BinaryConv2d(
            in_channels,
            out_channels,
            3,
            2 if halve else 1,
            padding=1,
            pad_value=pad_value,
            input_quantizer=quantizer,
            latent=latent,
        )
        self.norm = nn.BatchNorm2d(out_channels)
        self.pool = nn.AvgPool2d(2) if halve else nn.Identity()
        self.new = out_channels - in_channels
        self.act = nn.Hardtanh()

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        shortcut = self.pool(x)
        if self.new:
            shortcut = F.pad(shortcut, (0, 0, 0, 0, self.new // 2, self.new - self.new // 2))
        out: Tensor = self.act(self.norm(self.conv(x)) + shortcut)
        return out


class ResNet20(nn.Sequential):
    """A float 3x3 convolution, eighteen residual binary convolutions at 32, 16 and 8 pixels, a float dense layer."""

    def __init__(
        self,
        num_classes: int = 10,
        width: int = 16,
        *,
        image_size: int = 32,
        in_channels: int = 3,
        pad_value: int = 0,
        quantizer: str = "approx",
        latent: bool = False,
    ) -> None:
        check(num_classes, width, in_channels, image_size)
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        layers["stem_conv"] = nn.Conv2d(in_channels, width, 3, padding=1, bias=False)
        layers["stem_norm"] = nn.BatchNorm2d(width)
        layers["stem_act"] = nn.Hardtanh()
        channels = width
        for index in range(3 * DEPTH):
            halve = index > 0 and index % DEPTH == 0
            out = 2 * channels if halve else channels
            layers[f"block{index + 1}"] = ResNet20Block(
                channels, out, halve=halve, quantizer=quantizer, pad_value=pad_value, latent=latent
            )
            channels = out
        layers.update(classifier(channels, num_classes))
        super().__init__(layers)
        initialize(self)


class VGGSmall(nn.Sequential):
    """A float 3x3 convolution, five binary ones with three 2x2 max-pools, and a float dense layer."""

    def __init__(
        self,
        num_classes: int = 10,
        width: int = 128,
        *,
        image_size: int = 32,
        in_channels: int = 3,
        pad_value: int = 0,
        quantizer: str = "approx",
        latent: bool = False,
    ) -> None:
        check(num_classes, width, in_channels, image_size)
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        channels = in_channels
        for index, (widths, pooled) in enumerate(VGG_SMALL, start=1):
            out = widths * width
            if index == 1:
                layers["conv1"] = nn.Conv2d(channels, out, 3, padding=1, bias=False)
            else:
                layers[f"conv{index}"] = BinaryConv2d(
                    channels, out, 3, padding=1, pad_value=pad_value, input_quantizer=quantizer, latent=latent
                )
            if pooled:
                layers[f"pool{index}"] = nn.MaxPool2d(2)
            layers[f"norm{index}"] = nn.BatchNorm2d(out)
            layers[f"act{index}"] = nn.Hardtanh()
            channels = out
        layers["flatten"] = nn.Flatten()
        layers["dense"] = nn.Linear(channels * (image_size // 8) ** 2, num_classes)
        super().__init__(layers)
        initialize(self)
