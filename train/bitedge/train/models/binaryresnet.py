"""BinaryResNet: a residual network for small images whose every 3x3 convolution behind the stem is binary.

The graph is that of Bi-Real Net (Liu et al., https://arxiv.org/abs/1808.00278), a real-valued shortcut around each
binary convolution, with the per-channel PReLU of ReActNet (Liu et al., https://arxiv.org/abs/2003.03488) behind each
sum. The learned shifts of ReActNet are BatchNorm's own here: the one in front of the PReLU moves its kink and, with
it, the sign of the next block. So scale, sum, PReLU and sign are one epilogue of the convolution on a device.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from torch import Tensor, nn

from bitedge.train.errors import TrainError
from bitedge.train.models.birealnet import BiRealBlock
from bitedge.train.models.blocks import check_positive, classifier
from bitedge.train.nn import BinaryLayer, make_norm
from bitedge.train.nn.norm import Norm
from bitedge.train.nn.prelu import PReLU

STAGES = (1, 2, 3)
"""Channels of the three stages, in widths."""


class ResidualBlock(BiRealBlock):
    """The block of Bi-Real Net, and a PReLU of its sum."""

    def __init__(self, in_channels: int, out_channels: int, size: int, **options: Any) -> None:
        super().__init__(in_channels, out_channels, size, **options)
        self.act = PReLU(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        out: Tensor = self.act(super().forward(x))
        return out


class BinaryResNet(nn.Sequential):
    """A float stem, three stages of residual binary convolutions, each at half the size, and a float dense layer.

    The stem is a 3x3 convolution to `stem` channels and one of stride 2 to `width` channels, so that a 32x32 image has
    maps of 16, 8 and 4 pixels, with 1, 2 and 3 times `width` channels; each stage has `depth` binary convolutions. At
    width 128 that is 7.5 million binary weights and 183,000 real numbers: 1.35 MB packed with `--fp16`.
    """

    def __init__(
        self,
        num_classes: int = 10,
        width: int = 128,
        norm: Norm = "batch",
        *,
        depth: int = 4,
        stem: int = 32,
        image_size: int = 32,
        in_channels: int = 3,
        pad_value: int = 0,
        norm_momentum: float = 0.1,
        quantizer: str = "approx",
        latent: bool = False,
    ) -> None:
        check_positive(num_classes=num_classes, width=width, depth=depth, stem=stem, in_channels=in_channels)
        if image_size < 8 or image_size % 8:
            raise TrainError(f"image_size must be a multiple of 8, since maps are halved three times, got {image_size}")
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        layers["stem_conv1"] = nn.Conv2d(in_channels, stem, 3, padding=1, bias=False)
        layers["stem_norm1"] = make_norm(norm, stem, momentum=norm_momentum)
        layers["stem_act1"] = nn.ReLU()
        layers["stem_conv2"] = nn.Conv2d(stem, width, 3, stride=2, padding=1, bias=False)
        layers["stem_norm2"] = make_norm(norm, width, momentum=norm_momentum)
        channels = width
        for index in range(len(STAGES) * depth):
            stage, place = divmod(index, depth)
            layers[f"block{index + 1}"] = ResidualBlock(
                channels,
                STAGES[stage] * width,
                image_size // 2 ** max(stage, 1),
                halve=stage > 0 and place == 0,
                norm=norm,
                norm_momentum=norm_momentum,
                pad_value=pad_value,
                quantizer=quantizer,
                latent=latent,
            )
            channels = STAGES[stage] * width
        layers.update(classifier(channels, num_classes))
        super().__init__(layers)
        self._initialize()

    def _initialize(self) -> None:
        """Draw real weights at the scale of their inputs; ±1 weights keep the sign that they were born with."""
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d) or (isinstance(layer, BinaryLayer) and layer.latent):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="linear")
            if isinstance(layer, nn.Linear):  # the sums of all blocks are large: start with flat answers
                nn.init.normal_(layer.weight, std=0.01)
                nn.init.zeros_(layer.bias)
