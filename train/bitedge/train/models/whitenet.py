"""WhiteNet: a small float network that learns CIFAR-10 quickly, to teach binary ones.

After Jordan, "94% on CIFAR-10 in 3.29 Seconds on a Single GPU", https://arxiv.org/abs/2404.00498: a fixed first layer
that whitens patches of 2x2 pixels, three groups of two 3x3 convolutions with GELU and BatchNorm without scale, weights
that start as the identity, and small logits. It is float throughout; nothing of it is to be deployed.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from bitedge.train.models.blocks import check_positive
from bitedge.train.nn import batch_norm

PATCH = 2
GROUPS = (1, 4, 4)
"""Channels of the three groups, in widths."""


def identity_conv(in_channels: int, out_channels: int) -> nn.Conv2d:
    """A 3x3 convolution without bias whose first filters pass their channels on unchanged."""
    layer = nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=False)
    nn.init.dirac_(layer.weight.data[:in_channels])
    return layer


class ConvGroup(nn.Module):
    """Convolution, 2x2 max-pool, norm, GELU, then convolution, norm, GELU."""

    def __init__(self, in_channels: int, out_channels: int, momentum: float) -> None:
        super().__init__()
        self.conv1 = identity_conv(in_channels, out_channels)
        self.norm1 = batch_norm(out_channels, eps=1e-12, momentum=momentum, scale=False)
        self.conv2 = identity_conv(out_channels, out_channels)
        self.norm2 = batch_norm(out_channels, eps=1e-12, momentum=momentum, scale=False)
        self.pool = nn.MaxPool2d(2)
        self.act = nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        """Return the group's output, at half the size."""
        x = self.act(self.norm1(self.pool(self.conv1(x))))
        out: Tensor = self.act(self.norm2(self.conv2(x)))
        return out


class WhiteNet(nn.Module):
    """A whitening layer, three groups of convolutions at half the size each, and a dense layer, for 32x32 images.

    The first layer's weights come from training images (`whiten_by`, which `fit` calls for a network that a recipe
    names) and stay; only its bias is trained. `width` is the number of channels of the first group; the others have 4
    times as many. Logits are multiplied by `scale`.
    """

    def __init__(
        self,
        num_classes: int = 10,
        width: int = 64,
        *,
        in_channels: int = 3,
        scale: float = 1 / 9,
        norm_momentum: float = 0.4,
    ) -> None:
        super().__init__()
        check_positive(num_classes=num_classes, width=width, in_channels=in_channels)
        filters = 2 * in_channels * PATCH**2
        self.whiten = nn.Conv2d(in_channels, filters, PATCH)
        self.whiten.weight.requires_grad_(False)
        self.act = nn.GELU()
        channels = (filters, *(factor * width for factor in GROUPS))
        self.groups = nn.Sequential(*(ConvGroup(before, after, norm_momentum) for before, after in pairwise(channels)))
        self.pool = nn.AdaptiveMaxPool2d(1)
        self.head = nn.Linear(channels[-1], num_classes, bias=False)
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of `[N, in_channels, H, W]`."""
        x = self.pool(self.groups(self.act(self.whiten(x)))).flatten(1)
        logits: Tensor = self.head(x) * self.scale
        return logits

    @torch.no_grad()
    def whiten_by(self, images: Tensor, eps: float = 1.25e-4) -> None:
        """Set the first layer's filters to the principal axes of 2x2 patches, divided by their deviations; both signs.

        `eps` is added to the variances, so that axes which hold only noise are not blown up.
        """
        patches = images.unfold(2, PATCH, 1).unfold(3, PATCH, 1).permute(0, 2, 3, 1, 4, 5)
        rows = patches.reshape(-1, images.shape[1] * PATCH**2).double()
        variances, axes = torch.linalg.eigh(rows.T @ rows / len(rows))
        filters = (axes / (variances + eps).sqrt()).T.flip(0).reshape(-1, images.shape[1], PATCH, PATCH)
        self.whiten.weight.copy_(torch.cat([filters, -filters]))
        self.whiten.bias.zero_()  # type: ignore[union-attr]
