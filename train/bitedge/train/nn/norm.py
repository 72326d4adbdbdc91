"""Normalization between binary layers: BatchNorm with a fixed scale, and LayerNorm over channels."""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bitedge.train.errors import TrainError

Norm: TypeAlias = Literal["batch", "layer"]


class ChannelLayerNorm(nn.Module):
    """LayerNorm over the channels at each pixel, with scale and centre: Keras's `LayerNormalization()` on NHWC.

    Takes `[N, C, H, W]` or `[N, C]`. Its statistics depend on the pixel, so that, unlike BatchNorm, it cannot be
    folded into thresholds at inference.
    """

    def __init__(self, channels: int, eps: float = 1e-3) -> None:
        super().__init__()
        if channels < 1 or not eps > 0:
            raise TrainError(f"channels and eps must be positive, got {channels} and {eps}")
        self.channels = channels
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize each pixel."""
        if x.ndim == 2:
            return F.layer_norm(x, (self.channels,), self.weight, self.bias, self.eps)
        pixels = x.permute(0, 2, 3, 1)
        return F.layer_norm(pixels, (self.channels,), self.weight, self.bias, self.eps).permute(0, 3, 1, 2)

    def extra_repr(self) -> str:
        """Describe the layer as torch's own layers do."""
        return f"{self.channels}, eps={self.eps}"


def batch_norm(
    channels: int, *, dims: Literal[1, 2] = 2, eps: float = 1e-3, momentum: float = 0.01, scale: bool = True
) -> nn.BatchNorm1d | nn.BatchNorm2d:
    """Return torch's BatchNorm; with `scale=False` its weight is frozen at 1 (Keras's `scale=False, center=True`).

    A frozen weight rather than none, so that everything that reads a BatchNorm (export, cuDNN) meets an ordinary one.
    `momentum` is torch's: 1 minus Keras's.
    """
    layer = (nn.BatchNorm2d if dims == 2 else nn.BatchNorm1d)(channels, eps=eps, momentum=momentum)
    layer.weight.requires_grad_(scale)
    return layer


def make_norm(
    kind: Norm,
    channels: int,
    *,
    dims: Literal[1, 2] = 2,
    eps: float = 1e-3,
    momentum: float = 0.01,
    scale: bool = True,
) -> nn.Module:
    """Return the normalization of this kind: `"batch"` or `"layer"` (which always scales, and takes no momentum)."""
    if kind == "layer":
        return ChannelLayerNorm(channels, eps)
    if kind == "batch":
        return batch_norm(channels, dims=dims, eps=eps, momentum=momentum, scale=scale)
    raise TrainError(f"norm must be 'batch' or 'layer', got {kind!r}")
