"""Binary convolution."""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch.nn.functional as F
from torch import Tensor

from bitedge.train.errors import TrainError
from bitedge.train.nn.binary_layer import BinaryLayer
from bitedge.train.nn.window import Padding, pair, resolve_pads

PadValue: TypeAlias = Literal[-1, 0, 1]


class BinaryConv2d(BinaryLayer):
    """A convolution of ±1 inputs with ±1 weights, without bias.

    The input is binarized first and padded afterwards, with `pad_value`: 0 (as in the papers and in PyTorch, so that a
    border output has fewer taps), +1 or -1 (so that everything is a bit, which is quicker on a device).
    With `input_quantizer=None` the input is taken as it is: the first layer of BinaryNet, on real pixels.

    `padding` is an int, `(height, width)`, `(top, left, bottom, right)`, or `"tf_same"`: TensorFlow's rule, which
    puts the odd pixel of a strided layer at the bottom and right.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: Padding = 0,
        dilation: int | tuple[int, int] = 1,
        groups: int = 1,
        *,
        pad_value: int = 0,
        input_quantizer: str | None = "ste",
        latent: bool = False,
    ) -> None:
        self._check(in_channels, out_channels, groups, pad_value)
        kernel = pair(kernel_size, "kernel_size")
        super().__init__((out_channels, in_channels // groups, *kernel), input_quantizer=input_quantizer, latent=latent)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel
        self.stride = pair(stride, "stride")
        self.padding = padding
        self.dilation = pair(dilation, "dilation")
        self.groups = groups
        self.pad_value = pad_value
        self.pads(*self.kernel_size)  # refuses a malformed padding now rather than at the first image

    @staticmethod
    def _check(in_channels: int, out_channels: int, groups: int, pad_value: int) -> None:
        if min(in_channels, out_channels, groups) < 1 or in_channels % groups or out_channels % groups:
            raise TrainError(
                "in_channels and out_channels must be positive multiples of groups, "
                f"got {in_channels}, {out_channels} and {groups}"
            )
        if pad_value not in (-1, 0, 1):
            raise TrainError(f"pad_value must be -1, 0 or 1, got {pad_value}")

    def pads(self, height: int, width: int) -> tuple[int, int, int, int]:
        """Return the padding of a map of this size: top, left, bottom, right."""
        return resolve_pads(self.padding, (height, width), self.kernel_size, self.stride, self.dilation)

    def forward(self, x: Tensor) -> Tensor:
        """Convolve `[N, in_channels, H, W]`."""
        x = self.quantize_input(x)
        top, left, bottom, right = self.pads(x.shape[-2], x.shape[-1])
        if self.pad_value == 0 and top == bottom and left == right:
            padding = (top, left)
        else:
            padding = (0, 0)
            x = F.pad(x, (left, right, top, bottom), value=float(self.pad_value))
        return F.conv2d(x, self.effective_weight(), None, self.stride, padding, self.dilation, self.groups)

    def extra_repr(self) -> str:
        """Describe the layer as torch's own layers do."""
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"padding={self.padding!r}, dilation={self.dilation}, groups={self.groups}, pad_value={self.pad_value}, "
            f"input_quantizer={self.input_quantizer!r}, latent={self.latent}"
        )
