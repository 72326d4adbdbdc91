"""ReActNet: binary networks with learned thresholds, on the graphs of Bi-Real Net (18 layers) and of MobileNetV1.

Liu et al., ReActNet: Towards Precise Binary Neural Network with Generalized Activation Functions,
https://arxiv.org/abs/2003.03488. Every binary convolution has its own real-valued shortcut, an RSign before it and an
RPReLU behind the sum. The published code scales binary weights by the mean of their latent magnitude; the BatchNorm
that follows absorbs that scale, so there is none here.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn

from bitedge.train.models.blocks import (
    check_positive,
    classifier,
    conv_shortcut,
    float_conv,
    half_avg_pool,
    halved,
    initialize,
    mobilenet_plan,
    same_max_pool,
)
from bitedge.train.nn import BinaryConv2d, RPReLU, RSign

WIDTH_18 = 64
WIDTH_A = 32


class ReActConv(nn.Module):
    """RSign, binary convolution, BatchNorm, the sum with `shortcut` and RPReLU."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel: int,
        stride: int = 1,
        *,
        quantizer: str = "approx",
        pad_value: int = 0,
        latent: bool = False,
    ) -> None:
        super().__init__()
        self.sign = RSign(in_channels, quantizer)
        self.conv = BinaryConv2d(
            in_channels,
            out_channels,
            kernel,
            stride,
            padding=kernel // 2,
            pad_value=pad_value,
            input_quantizer=None,
            latent=latent,
        )
        self.norm = nn.BatchNorm2d(out_channels)
        self.act = RPReLU(out_channels)

    def forward(self, x: Tensor, shortcut: Tensor) -> Tensor:
        """Return the layer's output."""
        out: Tensor = self.act(self.norm(self.conv(self.sign(x))) + shortcut)
        return out


class ReActBlock18(nn.Module):
    """One binary 3x3 convolution with its shortcut; a halved map has a 2x2 mean, a float 1x1 convolution and a norm."""

    def __init__(self, in_channels: int, out_channels: int, size: int, *, halve: bool, **options: object) -> None:
        super().__init__()
        self.layer = ReActConv(in_channels, out_channels, 3, 2 if halve else 1, **options)  # type: ignore[arg-type]
        self.shortcut = conv_shortcut(in_channels, out_channels, size) if halve else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        out: Tensor = self.layer(x, self.shortcut(x))
        return out


class ReActNet18(nn.Sequential):
    """A float 7x7 convolution, sixteen residual binary convolutions with learned activations and a float dense layer.

    `small_stem=True` is the form for 32x32 images: a 3x3 convolution of stride 1 and no pooling.
    """

    def __init__(
        self,
        num_classes: int = 1000,
        width: int = WIDTH_18,
        *,
        image_size: int = 224,
        in_channels: int = 3,
        small_stem: bool = False,
        pad_value: int = 0,
        quantizer: str = "approx",
        latent: bool = False,
    ) -> None:
        check_positive(num_classes=num_classes, width=width, in_channels=in_channels, image_size=image_size)
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        kernel, stride = (3, 1) if small_stem else (7, 2)
        for name, layer in float_conv(in_channels, width, kernel, stride, image_size, tf_same=False):
            layers[f"stem_{name}"] = layer
        layers["stem_norm"] = nn.BatchNorm2d(width)
        size = halved(image_size, stride)
        if not small_stem:
            layers["stem_pool"] = same_max_pool(size, tf_same=False)
            size = halved(size)
        channels = width
        for index in range(16):
            halve = index > 0 and index % 4 == 0
            out = 2 * channels if halve else channels
            layers[f"block{index + 1}"] = ReActBlock18(
                channels, out, size, halve=halve, quantizer=quantizer, pad_value=pad_value, latent=latent
            )
            channels, size = out, halved(size) if halve else size
        layers.update(classifier(channels, num_classes))
        super().__init__(layers)
        initialize(self)


class ReActBlockA(nn.Module):
    """A binary 3x3 convolution and a binary 1x1 convolution, each with its shortcut.

    Where channels double, the paper has two 1x1 convolutions, each with the same shortcut, and joins them; here they
    are one of twice the width, and the shortcut is joined to itself. Where the map is halved, the first shortcut is a
    2x2 mean.
    """

    def __init__(self, in_channels: int, out_channels: int, size: int, *, halve: bool, **options: object) -> None:
        super().__init__()
        self.spatial = ReActConv(in_channels, in_channels, 3, 2 if halve else 1, **options)  # type: ignore[arg-type]
        self.shortcut = half_avg_pool(size) if halve else nn.Identity()
        self.pointwise = ReActConv(in_channels, out_channels, 1, **options)  # type: ignore[arg-type]
        self.doubles = out_channels == 2 * in_channels

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        x = self.spatial(x, self.shortcut(x))
        out: Tensor = self.pointwise(x, torch.cat((x, x), 1) if self.doubles else x)
        return out


class ReActNetA(nn.Sequential):
    """A float 3x3 convolution of stride 2, thirteen blocks of a 3x3 and a 1x1 binary convolution, a float dense layer.

    The graph is that of MobileNetV1, with plain binary 3x3 convolutions in the place of its depthwise ones.
    """

    def __init__(
        self,
        num_classes: int = 1000,
        width: int = WIDTH_A,
        *,
        image_size: int = 224,
        in_channels: int = 3,
        stem_stride: int = 2,
        pad_value: int = 0,
        quantizer: str = "approx",
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
            layers[f"block{index}"] = ReActBlockA(
                channels, out, size, halve=halve, quantizer=quantizer, pad_value=pad_value, latent=latent
            )
        layers.update(classifier(out, num_classes))
        super().__init__(layers)
        initialize(self)
