"""Activations whose shape is learned per channel, for binary layers.

Liu et al., ReActNet, https://arxiv.org/abs/2003.03488: `RSign` moves the threshold of the sign, `RPReLU` the point
where a PReLU bends, and its output.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bitedge.train.errors import TrainError
from bitedge.train.nn.quantize import quantizer


def per_channel(parameter: Tensor, x: Tensor) -> Tensor:
    """Shape one value per channel for `[N, C, ...]`."""
    return parameter.reshape(1, -1, *(1,) * (x.ndim - 2))


class RSign(nn.Module):
    """Binarize at a learned threshold: +1 where `x >= threshold` of the channel, -1 elsewhere.

    Put it before a binary layer with `input_quantizer=None`, which takes its ±1 as they are. The threshold gets the
    gradient of `quantizer(x - threshold)`; for inference it folds into the integer threshold of the layer before it.
    """

    real = False
    """Whether this is a layer of a float teacher: see `make_real`."""

    def __init__(self, channels: int, quantizer_name: str = "approx") -> None:
        super().__init__()
        if channels < 1:
            raise TrainError(f"channels must be positive, got {channels}")
        self.channels = channels
        self.quantizer_name = quantizer_name
        self._quantize = quantizer(quantizer_name)
        self.threshold = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Binarize `[N, channels, ...]`."""
        shifted = x - per_channel(self.threshold, x)
        return F.hardtanh(shifted) if self.real else self._quantize(shifted)

    def extra_repr(self) -> str:
        """Describe the layer as torch's own layers do."""
        return f"{self.channels}, quantizer_name={self.quantizer_name!r}"


class RPReLU(nn.Module):
    """PReLU with a learned bend and a learned shift: `prelu(x - bend) + shift`, all three per channel."""

    def __init__(self, channels: int, slope: float = 0.25) -> None:
        super().__init__()
        if channels < 1:
            raise TrainError(f"channels must be positive, got {channels}")
        self.channels = channels
        self.bend = nn.Parameter(torch.zeros(channels))
        self.prelu = nn.PReLU(channels, init=slope)
        self.shift = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Apply to `[N, channels, ...]`."""
        bent: Tensor = self.prelu(x - per_channel(self.bend, x))
        return bent + per_channel(self.shift, x)

    def extra_repr(self) -> str:
        """Describe the layer as torch's own layers do."""
        return f"{self.channels}"
