"""BinaryNet, the VGG-like network that is binary from the first layer to the last.

Courbariaux et al., Binarized Neural Networks, https://arxiv.org/abs/1602.02830, in the form that Bop
(https://arxiv.org/abs/1906.02107) and Bop2ndOrder (https://arxiv.org/abs/2104.05124) were measured with.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Literal

from torch import nn

from bitedge.train.errors import TrainError
from bitedge.train.models.blocks import check_positive
from bitedge.train.nn import BinaryConv2d, BinaryLinear, make_norm
from bitedge.train.nn.norm import Norm


class BinaryNet(nn.Sequential):
    """Six binary convolutions of 3x3 and three binary dense layers; each is followed by pooling?, norm and sign.

    The order is convolution, max-pool, norm, sign: the sign belongs to the layer that comes next. The first
    convolution sees the real pixels and has no padding, as the paper's code has it: maps of 30, 15, 7 and 3 pixels for
    a 32x32 image, 4,608 features, 10,352,000 binary weights at width 128. `first_padding=1` gives the padded variant.

    `width` is the number of channels of the first convolution; the others have 1, 2, 2, 4 and 4 times as many, and the
    dense layers `dense` features, 8 times `width` unless given, so that a narrow network keeps its proportions.

    `norm="batch"` is BatchNorm; by default it only centres (`norm_scale=False`: its weight is fixed at 1), which for
    the last one bounds the logits. `norm="layer"` is LayerNorm over channels, with scale and centre.
    `latent=True` makes the weights real, binarized in the forward pass, for training with Adam.
    """

    def __init__(
        self,
        num_classes: int = 10,
        width: int = 128,
        norm: Norm = "batch",
        *,
        dense: int | None = None,
        image_size: int = 32,
        in_channels: int = 3,
        first_padding: int = 0,
        pad_value: int = 0,
        norm_scale: bool = False,
        norm_eps: float = 1e-3,
        norm_momentum: float = 0.01,
        quantizer: str = "ste",
        latent: bool = False,
    ) -> None:
        dense = 8 * width if dense is None else dense
        check_positive(num_classes=num_classes, width=width, dense=dense, in_channels=in_channels)
        side = (image_size + 2 * first_padding - 2) // 8
        if side < 1:
            raise TrainError(
                f"image_size must be at least {10 - 2 * first_padding} for three poolings, got {image_size}"
            )
        layers: OrderedDict[str, nn.Module] = OrderedDict()

        def add_norm(index: int, channels: int, dims: Literal[1, 2]) -> None:
            layers[f"norm{index}"] = make_norm(
                norm, channels, dims=dims, eps=norm_eps, momentum=norm_momentum, scale=norm_scale
            )

        channels = in_channels
        for index, factor in enumerate((1, 1, 2, 2, 4, 4), start=1):
            layers[f"conv{index}"] = BinaryConv2d(
                channels,
                factor * width,
                3,
                padding=first_padding if index == 1 else 1,
                pad_value=pad_value,
                input_quantizer=None if index == 1 else quantizer,
                latent=latent,
            )
            if index % 2 == 0:
                layers[f"pool{index}"] = nn.MaxPool2d(2)
            channels = factor * width
            add_norm(index, channels, 2)
        layers["flatten"] = nn.Flatten()
        features = channels * side * side
        for index, size in enumerate((dense, dense, num_classes), start=7):
            layers[f"dense{index}"] = BinaryLinear(features, size, input_quantizer=quantizer, latent=latent)
            add_norm(index, size, 1)
            features = size
        super().__init__(layers)
