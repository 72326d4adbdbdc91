"""BNext-T: binary convolutions whose outputs are gated by their own inputs, on the graph of MobileNetV1.

Guo et al., Join the High Accuracy Club on ImageNet with A Binary Neural Network Ticket,
https://arxiv.org/abs/2211.12933. Gates and shortcuts are real-valued; every 3x3 and 1x1 convolution is binary.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn

from bitedge.train.models.blocks import check_positive, classifier, half_avg_pool, halved, initialize, mobilenet_plan
from bitedge.train.nn import BinaryConv2d, RSign

WIDTH = 32
SQUEEZE = 8
"""What the gate divides the channels by."""


class Gate(nn.Module):
    """One number between 0 and 1 per channel and image: Hu et al., https://arxiv.org/abs/1709.01507."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        few = max(1, channels // SQUEEZE)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.reduce = nn.Conv2d(channels, few, 1)
        self.relu = nn.ReLU()
        self.expand = nn.Conv2d(few, channels, 1)
        self.sigmoid = nn.Sigmoid()

    def forward(self, x: Tensor) -> Tensor:
        """Return the gate, `[N, channels, 1, 1]`."""
        gate: Tensor = self.sigmoid(self.expand(self.relu(self.reduce(self.pool(x)))))
        return gate


class GatedConv(nn.Module):
    """RSign, binary convolution, norm, PReLU, a gate that sees a mix of input and output, norm, and the shortcut.

    With `attention=True` the output is also multiplied by the shortcut, which has a PReLU of its own.
    """

    def __init__(
        self,
        channels: int,
        kernel: int,
        size: int,
        *,
        halve: bool = False,
        attention: bool = False,
        quantizer: str = "ste",
        pad_value: int = 0,
        latent: bool = False,
    ) -> None:
        super().__init__()
        self.sign = RSign(channels, quantizer)
        self.conv = BinaryConv2d(
            channels,
            channels,
            kernel,
            2 if halve else 1,
            padding=kernel // 2,
            pad_value=pad_value,
            input_quantizer=None,
            latent=latent,
        )
        self.norm1 = nn.BatchNorm2d(channels)
        self.act = nn.PReLU(channels)
        self.gate = Gate(channels)
        self.mix = nn.Parameter(torch.full((1, channels, 1, 1), 0.5))
        self.norm2 = nn.BatchNorm2d(channels)
        self.pool = half_avg_pool(size) if halve else nn.Identity()
        self.shortcut_act = nn.PReLU(channels) if attention else None

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output."""
        out: Tensor = self.act(self.norm1(self.conv(self.sign(x))))
        pooled = self.pool(x)
        mix = self.mix.clamp(0, 1)
        out = self.gate(mix * pooled + (1 - mix) * out) * out
        if self.shortcut_act is None:
            return self.norm2(out) + pooled  # type: ignore[no-any-return]
        shortcut = self.pool(self.shortcut_act(x))
        return self.norm2(out * shortcut) + shortcut  # type: ignore[no-any-return]


class BNextBlock(nn.Module):
    """A gated 3x3 convolution, then one gated 1x1 convolution, or two side by side where channels double."""

    def __init__(
        self, in_channels: int, out_channels: int, size: int, *, halve: bool, attention: bool, **options: object
    ) -> None:
        super().__init__()
        self.spatial = GatedConv(in_channels, 3, size, halve=halve, attention=attention, **options)  # type: ignore[arg-type]
        size = halved(size) if halve else size
        count = out_channels // in_channels
        self.pointwise = nn.ModuleList(GatedConv(in_channels, 1, size, **options) for _ in range(count))  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        x = self.spatial(x)
        outs = [layer(x) for layer in self.pointwise]
        return outs[0] if len(outs) == 1 else torch.cat(outs, 1)


class BNextT(nn.Sequential):
    """A float 3x3 convolution of stride 2, thirteen blocks of gated binary convolutions, and a float dense layer."""

    def __init__(
        self,
        num_classes: int = 1000,
        width: int = WIDTH,
        *,
        image_size: int = 224,
        in_channels: int = 3,
        stem_stride: int = 2,
        pad_value: int = 0,
        quantizer: str = "ste",
        latent: bool = False,
    ) -> None:
        check_positive(
            num_classes=num_classes,
            width=width,
            in_channels=in_channels,
            stem_stride=stem_stride,
            image_size=image_size,
        )
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        layers["stem_conv"] = nn.Conv2d(in_channels, width, 3, stem_stride, 1, bias=False)
        layers["stem_norm"] = nn.BatchNorm2d(width)
        plan = mobilenet_plan(width, halved(image_size, stem_stride))
        for index, (channels, out, size, halve) in enumerate(plan, start=1):
            layers[f"block{index}"] = BNextBlock(
                channels,
                out,
                size,
                halve=halve,
                attention=index % 2 == 0,
                quantizer=quantizer,
                pad_value=pad_value,
                latent=latent,
            )
        layers["act"] = nn.PReLU(out)
        layers.update(classifier(out, num_classes))
        super().__init__(layers)
        initialize(self)
