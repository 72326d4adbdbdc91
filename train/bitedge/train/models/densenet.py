"""BinaryDenseNet: every binary convolution adds its output as new channels to the map that it read.

Bethge et al., Back to Simplicity: How to Train Accurate BNNs from Scratch?, https://arxiv.org/abs/1906.08637.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bitedge.train.errors import TrainError
from bitedge.train.models.blocks import check_positive, classifier, float_conv, halved, initialize, same_max_pool
from bitedge.train.nn import BinaryConv2d

WIDTH = 64
LAYERS_28 = (6, 6, 6, 5)
REDUCTIONS_28 = (2.7, 2.7, 2.2)
"""BinaryDenseNet28: binary convolutions of the four blocks, and what the transitions between divide channels by."""


class DenseLayer(nn.Module):
    """BatchNorm and a binary 3x3 convolution; returns its input with the new channels behind it."""

    def __init__(self, channels: int, growth: int, *, quantizer: str, pad_value: int, latent: bool) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.conv = BinaryConv2d(
            channels, growth, 3, padding=1, pad_value=pad_value, input_quantizer=quantizer, latent=latent
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the input and the new channels."""
        return torch.cat((x, self.conv(self.norm(x))), 1)


def transition(channels: int, out_channels: int) -> nn.Sequential:
    """Return the layers between two blocks: BatchNorm, 2x2 max-pool, ReLU, float 1x1 convolution."""
    return nn.Sequential(
        OrderedDict(
            norm=nn.BatchNorm2d(channels),
            pool=nn.MaxPool2d(2),
            relu=nn.ReLU(),
            conv=nn.Conv2d(channels, out_channels, 1, bias=False),
        )
    )


class BinaryDenseNet28(nn.Sequential):
    """A float 7x7 convolution, 23 binary convolutions in four densely connected blocks, and a float dense layer.

    `width` is the number of channels of the stem and those that each layer adds. `small_stem=True` is the form for
    32x32 images: a 3x3 convolution of stride 1 and no pooling.
    """

    def __init__(
        self,
        num_classes: int = 1000,
        width: int = WIDTH,
        *,
        layers: Sequence[int] = LAYERS_28,
        reductions: Sequence[float] = REDUCTIONS_28,
        image_size: int = 224,
        in_channels: int = 3,
        small_stem: bool = False,
        pad_value: int = 0,
        quantizer: str = "ste",
        latent: bool = False,
    ) -> None:
        check_positive(num_classes=num_classes, width=width, in_channels=in_channels)
        if min(layers) < 1 or len(reductions) != len(layers) - 1:
            raise TrainError(
                f"layers must be positive, with one reduction between two blocks, got {layers} and {reductions}"
            )
        smallest = (1 if small_stem else 4) << (len(layers) - 1)
        if image_size < smallest:
            raise TrainError(f"image_size must be at least {smallest}, got {image_size}")
        parts: OrderedDict[str, nn.Module] = OrderedDict()
        if small_stem:
            parts["stem_conv"] = nn.Conv2d(in_channels, width, 3, padding=1, bias=False)
        else:
            for name, layer in float_conv(in_channels, width, 7, 2, image_size, tf_same=False):
                parts[f"stem_{name}"] = layer
            parts["stem_norm"] = nn.BatchNorm2d(width)
            parts["stem_relu"] = nn.ReLU()
            parts["stem_pool"] = same_max_pool(halved(image_size), tf_same=False)
        channels = width
        for block, count in enumerate(layers, start=1):
            if block > 1:
                out = rounded(channels // reductions[block - 2], width)
                parts[f"transition{block - 1}"] = transition(channels, out)
                channels = out
            for index in range(count):
                parts[f"block{block}_layer{index + 1}"] = DenseLayer(
                    channels, width, quantizer=quantizer, pad_value=pad_value, latent=latent
                )
                channels += width
        parts["norm"] = nn.BatchNorm2d(channels)
        parts["relu"] = nn.ReLU()
        parts.update(classifier(channels, num_classes))
        super().__init__(parts)
        initialize(self)


def rounded(channels: float, width: int) -> int:
    """Return the nearest multiple of half the width (32 in the paper), at least one."""
    half = max(1, width // 2)
    return max(1, round(channels / half)) * half
