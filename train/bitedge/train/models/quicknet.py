"""QuickNet: a binary network made to be quick on a device, of residual 3x3 convolutions and float transitions.

Bannink et al., Larq Compute Engine, https://arxiv.org/abs/2011.09398, in the form of Larq Zoo 2. The padding of
strided float layers is torch's, symmetric; Larq's puts the odd pixel at the bottom and right.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bitedge.train.errors import TrainError
from bitedge.train.models.blocks import check_positive, classifier, initialize
from bitedge.train.nn import BinaryConv2d, batch_norm

WIDTH = 64
RATIOS = (1, 2, 4, 8)
SMALL_RATIOS = (1, 2, 8, 16)
"""Channels of the four sections, in widths; QuickNetSmall has width 32."""


class BlurPool(nn.Conv2d):
    """A fixed 3x3 binomial filter of stride 2, the same for every channel: Zhang, https://arxiv.org/abs/1904.11486."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, channels, 3, stride=2, padding=1, groups=channels, bias=False)
        self.weight.requires_grad_(False)

    def reset_parameters(self) -> None:
        """Write the filter."""
        line = torch.tensor([1.0, 2.0, 1.0]) / 4
        with torch.no_grad():
            self.weight.copy_(torch.outer(line, line).expand_as(self.weight))


class QuickBlock(nn.Module):
    """Binary 3x3 convolution padded with +1, ReLU, BatchNorm, and the sum with the input."""

    def __init__(self, channels: int, *, quantizer: str, pad_value: int, latent: bool) -> None:
        super().__init__()
        self.conv = BinaryConv2d(
            channels, channels, 3, padding=1, pad_value=pad_value, input_quantizer=quantizer, latent=latent
        )
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        out: Tensor = self.norm(F.relu(self.conv(x))) + x
        return out


def transition(in_channels: int, out_channels: int) -> nn.Sequential:
    """Return the layers between two sections: ReLU, anti-aliased max-pool of stride 2, float 1x1 convolution, norm."""
    return nn.Sequential(
        OrderedDict(
            relu=nn.ReLU(),
            pool=nn.MaxPool2d(2, stride=1),
            blur=BlurPool(in_channels),
            conv=nn.Conv2d(in_channels, out_channels, 1, bias=False),
            norm=nn.BatchNorm2d(out_channels),
        )
    )


def stem(in_channels: int, channels: int, stride: int) -> OrderedDict[str, nn.Module]:
    """Return a float 3x3 convolution to a quarter of the channels, a depthwise and a 1x1 convolution."""
    few = max(1, channels // 4)
    return OrderedDict(
        stem_conv=nn.Conv2d(in_channels, few, 3, stride, 1, bias=False),
        stem_norm=batch_norm(few, momentum=0.01),
        stem_relu=nn.ReLU(),
        stem_depthwise=nn.Conv2d(few, few, 3, stride, 1, groups=few, bias=False),
        stem_depthwise_norm=nn.BatchNorm2d(few, eps=1e-3, momentum=0.01, affine=False),
        stem_pointwise=nn.Conv2d(few, channels, 1, bias=False),
        stem_pointwise_norm=batch_norm(channels, momentum=0.01),
    )


class QuickNet(nn.Sequential):
    """A float stem, four sections of residual binary convolutions with float transitions, and a float dense layer.

    `stem_stride=1` keeps more of a small image: the stem has two layers of that stride.
    """

    def __init__(
        self,
        num_classes: int = 1000,
        width: int = WIDTH,
        *,
        blocks: Sequence[int] = (4, 4, 4, 4),
        ratios: Sequence[int] = RATIOS,
        image_size: int = 224,
        in_channels: int = 3,
        stem_stride: int = 2,
        pad_value: int = 1,
        quantizer: str = "ste",
        latent: bool = False,
    ) -> None:
        check_positive(num_classes=num_classes, width=width, in_channels=in_channels, stem_stride=stem_stride)
        if min(*blocks, *ratios) < 1 or len(blocks) != len(ratios):
            raise TrainError(f"expected as many positive blocks as ratios, got {blocks} and {ratios}")
        smallest = (stem_stride**2) << (len(ratios) - 1)
        if image_size < 2 * smallest:
            raise TrainError(f"image_size must be at least {2 * smallest} at this stem_stride, got {image_size}")
        layers = stem(in_channels, ratios[0] * width, stem_stride)
        channels = ratios[0] * width
        for section, (count, ratio) in enumerate(zip(blocks, ratios, strict=True), start=1):
            if section > 1:
                layers[f"transition{section - 1}"] = transition(channels, ratio * width)
                channels = ratio * width
            for index in range(count):
                layers[f"section{section}_block{index + 1}"] = QuickBlock(
                    channels, quantizer=quantizer, pad_value=pad_value, latent=latent
                )
        layers["relu"] = nn.ReLU()
        layers.update(classifier(channels, num_classes))
        super().__init__(layers)
        initialize(self)


def quicknet_small(num_classes: int = 1000, width: int = 32, image_size: int = 224, **options: Any) -> QuickNet:
    """Return QuickNetSmall: few channels in the first two sections."""
    return QuickNet(num_classes, width, image_size=image_size, ratios=SMALL_RATIOS, **options)


def quicknet_large(num_classes: int = 1000, width: int = WIDTH, image_size: int = 224, **options: Any) -> QuickNet:
    """Return QuickNetLarge: twice as many blocks."""
    return QuickNet(num_classes, width, image_size=image_size, blocks=(6, 8, 12, 6), **options)
