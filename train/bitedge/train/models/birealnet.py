"""Bi-Real Net with 18 layers: a residual network whose every 3x3 convolution is binary and has its own shortcut.

Liu et al., Bi-Real Net, https://arxiv.org/abs/1808.00278, in the form that Bop2ndOrder
(https://arxiv.org/abs/2104.05124) was measured with.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn

from bitedge.train.models.blocks import check_positive, classifier, float_conv, half_avg_pool, halved, same_max_pool
from bitedge.train.nn import BinaryConv2d, BinaryLayer, make_norm
from bitedge.train.nn.norm import Norm

WIDTH = 64
EPS = 1e-3


class BiRealBlock(nn.Module):
    """Binary 3x3 convolution, norm, and the sum with the real-valued shortcut.

    When the map is halved, the shortcut is a 2x2 mean, a float 1x1 convolution and a norm.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        size: int,
        *,
        halve: bool,
        norm: Norm,
        norm_momentum: float,
        pad_value: int,
        quantizer: str,
        latent: bool,
        tf_same: bool = False,
    ) -> None:
        super().__init__()
        self.conv = BinaryConv2d(
            in_channels,
            out_channels,
            3,
            stride=2 if halve else 1,
            padding="tf_same" if tf_same else 1,
            pad_value=pad_value,
            input_quantizer=quantizer,
            latent=latent,
        )
        self.norm = make_norm(norm, out_channels, eps=EPS, momentum=norm_momentum)
        self.shortcut: nn.Module = nn.Identity()
        if halve:
            self.shortcut = nn.Sequential(
                OrderedDict(
                    pool=half_avg_pool(size),
                    conv=nn.Conv2d(in_channels, out_channels, 1, bias=False),
                    norm=make_norm(norm, out_channels, eps=EPS, momentum=norm_momentum),
                )
            )

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        out: Tensor = self.norm(self.conv(x)) + self.shortcut(x)
        return out


class BiRealNet18(nn.Sequential):
    """A float 7x7 convolution, sixteen residual binary convolutions and a float dense layer, for images of any size.

    Maps of a 224x224 image: 112 and 56 in the stem, then 56, 28, 14 and 7 pixels with 1, 2, 4 and 8 times `width`
    channels, four convolutions each. `stem_stride=1` or `stem_pool=False` keep more of a small image.

    `norm="batch"` is BatchNorm with scale, epsilon 1e-3, torch momentum 0.2; `norm="layer"` is LayerNorm over channels.
    Activations are binarized by `approx_sign`. There is no ReLU. `tf_same=True` pads as TensorFlow does.
    """

    def __init__(
        self,
        num_classes: int = 1000,
        width: int = WIDTH,
        norm: Norm = "batch",
        *,
        image_size: int = 224,
        in_channels: int = 3,
        stem_stride: int = 2,
        stem_pool: bool = True,
        tf_same: bool = False,
        pad_value: int = 0,
        norm_momentum: float = 0.2,
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
        for name, layer in float_conv(in_channels, width, 7, stem_stride, image_size, tf_same=tf_same):
            layers[f"stem_{name}"] = layer
        layers["stem_norm"] = make_norm(norm, width, eps=EPS, momentum=norm_momentum)
        size = halved(image_size, stem_stride)
        if stem_pool:
            layers["stem_pool"] = same_max_pool(size, tf_same=tf_same)
            size = halved(size)

        channels = width
        for index in range(16):
            halve = index > 0 and index % 4 == 0
            out = 2 * channels if halve else channels
            layers[f"block{index + 1}"] = BiRealBlock(
                channels,
                out,
                size,
                halve=halve,
                norm=norm,
                norm_momentum=norm_momentum,
                tf_same=tf_same,
                pad_value=pad_value,
                quantizer=quantizer,
                latent=latent,
            )
            channels = out
            size = halved(size) if halve else size
        layers.update(classifier(channels, num_classes))
        super().__init__(layers)
        self._initialize()

    def _initialize(self) -> None:
        """Draw real weights from Glorot's normal distribution; ±1 weights keep the sign that they were born with."""
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear) or (isinstance(layer, BinaryLayer) and layer.latent):
                nn.init.xavier_normal_(layer.weight)
            if isinstance(layer, nn.Linear):
                nn.init.zeros_(layer.bias)
