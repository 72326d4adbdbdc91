"""XnorNet: AlexNet with binary layers in its middle, without scaling factors.

Rastegari et al., XNOR-Net, https://arxiv.org/abs/1603.05279, in the form that Bop2ndOrder
(https://arxiv.org/abs/2104.05124) was measured with: the weights are ±1, not ±alpha.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from bitedge.train.errors import TrainError
from bitedge.train.models.blocks import check_positive, float_conv, halved, valid_pooled
from bitedge.train.nn import BinaryConv2d, make_norm
from bitedge.train.nn.norm import Norm

WIDTH = 96

# Channels at full width, kernel (None: the whole map), 3x3 pooling of stride 2, and epsilon of the BatchNorm.
BINARY_LAYERS = (
    (256, 5, True, 1e-4),
    (384, 3, False, 1e-4),
    (384, 3, False, 1e-4),
    (256, 3, True, 1e-4),
    (4096, None, False, 1e-4),
    (4096, 1, False, 1e-3),
)


class XnorNet(nn.Sequential):
    """A float 11x11 convolution, six binary convolutions and a float dense layer, for images of any size.

    Maps of a 224x224 image: 56, 27, 13 and 6 pixels. `stem_stride` fits other sizes: 2 suits 64x64 images. The sixth
    layer's kernel is the whole remaining map (6x6 at 224), so that the rest is a dense network.

    `width` is the number of channels of the first convolution; all others keep their proportion to its 96.
    `norm="batch"` is BatchNorm with scale, epsilon 1e-4 (1e-5 in the stem, 1e-3 at the end), torch momentum 0.1;
    `norm="layer"` is LayerNorm over channels with epsilon 1e-3.
    `tf_same=True` pads as TensorFlow does, for parity with weights that were trained there.
    """

    def __init__(
        self,
        num_classes: int = 1000,
        width: int = WIDTH,
        norm: Norm = "batch",
        *,
        image_size: int = 224,
        in_channels: int = 3,
        stem_stride: int = 4,
        tf_same: bool = False,
        pad_value: int = 0,
        norm_momentum: float = 0.1,
        quantizer: str = "ste",
        latent: bool = False,
    ) -> None:
        check_positive(num_classes=num_classes, width=width, in_channels=in_channels, stem_stride=stem_stride)
        layers: OrderedDict[str, nn.Module] = OrderedDict()

        def add_norm(name: str, channels: int, eps: float) -> None:
            eps = eps if norm == "batch" else 1e-3
            layers[name] = make_norm(norm, channels, eps=eps, momentum=norm_momentum)

        size = halved(image_size, stem_stride)
        for name, layer in float_conv(in_channels, width, 11, stem_stride, image_size, tf_same=tf_same):
            layers[f"{name}1"] = layer
        add_norm("stem_norm", width, 1e-5)
        layers["stem_relu"] = nn.ReLU()
        layers["pool1"] = nn.MaxPool2d(3, 2)
        add_norm("norm1", width, 1e-4)
        size = valid_pooled(size)

        channels = width
        for index, (full_channels, kernel, pooled, eps) in enumerate(BINARY_LAYERS, start=2):
            if size < 1:
                raise TrainError(
                    f"image_size {image_size} is too small for three poolings at stem_stride {stem_stride}; "
                    "use larger images or a smaller stem_stride"
                )
            out = max(1, round(full_channels * width / WIDTH))
            layers[f"conv{index}"] = BinaryConv2d(
                channels,
                out,
                kernel or size,
                padding=kernel // 2 if kernel else 0,
                pad_value=pad_value,
                input_quantizer=quantizer,
                latent=latent,
            )
            size = size if kernel else 1
            if pooled:
                layers[f"pool{index}"] = nn.MaxPool2d(3, 2)
                size = valid_pooled(size)
            channels = out
            add_norm(f"norm{index}", channels, eps)
        layers["relu"] = nn.ReLU()
        layers["flatten"] = nn.Flatten()
        layers["dense"] = nn.Linear(channels, num_classes, bias=False)
        super().__init__(layers)
        for layer in self:
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
