"""Networks that tests of several files share: users' own ones, and how to give any network lively parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from bitedge.export.capture.capture import prepare
from bitedge.train.nn import BinaryConv2d, BinaryLinear, ChannelLayerNorm

GRID: dict[str, Any] = {
    "size": [32, 32],
    "resize": None,
    "interpolation": "bilinear",
    "scale": [2 / 256] * 3,
    "offset": [-255 / 256] * 3,
}
OFF_GRID: dict[str, Any] = GRID | {"scale": [1 / 58.4, 1 / 57.1, 1 / 57.4], "offset": [-2.1, -2.0, -1.8]}


def enliven(module: nn.Module, images: NDArray[np.uint8], preprocessing: dict[str, Any], seed: int = 0) -> nn.Module:
    """Give every norm the statistics of real images and scales of every sign, some of them 0; evaluation mode."""
    generator = torch.Generator().manual_seed(seed)
    norms = [layer for layer in module.modules() if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0
    module.train()
    with torch.no_grad():
        module(prepare(images, preprocessing))
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
            norm.weight.normal_(0, 1, generator=generator)
            norm.weight[torch.rand(norm.weight.shape, generator=generator) < 0.1] = 0
            norm.bias.normal_(0, 0.5, generator=generator)
        for layer in module.modules():
            if isinstance(layer, ChannelLayerNorm):
                layer.weight.normal_(1, 0.3, generator=generator)
                layer.bias.normal_(0, 0.3, generator=generator)
    return module.eval()


class UserResidual(nn.Module):
    """Residual, with stride 2 and padding at the bottom and right only; nothing of it is built in."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.stem_norm = nn.BatchNorm2d(16)
        self.conv1 = BinaryConv2d(16, 16, 3, padding=1, pad_value=1, input_quantizer="approx")
        self.norm1 = nn.BatchNorm2d(16)
        self.act1 = nn.PReLU(16)
        self.conv2 = BinaryConv2d(16, 32, 3, stride=2, padding=(0, 0, 1, 1), pad_value=-1, input_quantizer="swish")
        self.norm2 = nn.BatchNorm2d(32)
        self.down = nn.Conv2d(16, 32, 1, bias=False)
        self.conv3 = BinaryConv2d(32, 32, 3, padding=2, dilation=2)
        self.norm3 = nn.BatchNorm2d(32)
        self.head = nn.Linear(32, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Answer."""
        x = F.relu(self.stem_norm(self.stem(x)))
        x = self.act1(self.norm1(self.conv1(x)) + x)
        x = self.norm2(self.conv2(x)) + self.down(F.avg_pool2d(x, 2))
        x = torch.add(x, self.norm3(self.conv3(x)))
        logits: Tensor = self.head(x.mean((2, 3)))
        return logits


class UserGrouped(nn.Module):
    """Grouped binary convolutions, binary from the pixels to the last dense layer."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = BinaryConv2d(3, 24, 3, padding=1, input_quantizer=None)
        self.norm1 = nn.BatchNorm2d(24)
        self.conv2 = BinaryConv2d(24, 48, 3, padding=1, groups=4)
        self.norm2 = nn.BatchNorm2d(48)
        self.conv3 = BinaryConv2d(48, 48, 3, stride=2, padding="tf_same", groups=48, pad_value=-1)
        self.norm3 = nn.BatchNorm2d(48)
        self.dense = BinaryLinear(48 * 4 * 4, classes)
        self.norm4 = nn.BatchNorm1d(classes)

    def forward(self, x: Tensor) -> Tensor:
        """Answer."""
        x = F.max_pool2d(self.norm1(self.conv1(x)), 2)
        x = self.norm2(F.max_pool2d(self.conv2(x), 2))
        x = self.norm3(self.conv3(x))
        logits: Tensor = self.norm4(self.dense(x.view(x.size(0), -1)))
        return logits
