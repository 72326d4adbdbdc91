"""Random supported networks: plain, residual, grouped, dilated, strided, padded in every way, of every operator.

Hypothesis draws a seed, the number of blocks and whether the network shall be exact (integers from pixel to answer, but
for the last scale); a generator with that seed draws the rest, so that networks differ as much as they can.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.export.random_operators import Apply, draw
from torch import Tensor, nn

from bitedge.train.nn import BinaryConv2d, BinaryLinear, ChannelLayerNorm

GRID = {"scale": [2 / 256] * 3, "offset": [-255 / 256] * 3}
OFF_GRID = {"scale": [1 / 58.4, 1 / 57.1, 1 / 57.4], "offset": [-2.1, -2.0, -1.8]}


@dataclass(frozen=True)
class Case:
    """A network, how it is fed, and images for it."""

    module: nn.Module
    shape: tuple[int, int, int]
    preprocessing: dict[str, Any] | None
    images: NDArray[Any]
    drawn: tuple[str, ...]
    """The names of its operators from `random_operators`."""

    def __repr__(self) -> str:
        return f"{self.module}\nshape {self.shape}, preprocessing {self.preprocessing}"


class Residual(nn.Module):
    """norm(conv(x)) + shortcut(x)."""

    def __init__(self, body: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        """Add the two ways."""
        total: Tensor = self.body(x) + self.shortcut(x)
        return total


class InPlace(nn.Module):
    """Writes in place into what it reads again, uses one layer twice, and shuffles the halves of its channels."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv, self.relu = conv, nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """Give `[N, C, H, W]` again."""
        x = x * 1.0  # the input itself stays as it is
        out = self.conv(self.relu(x))
        out += x
        out = self.conv(out)
        half = out.shape[1] // 2
        return torch.cat([out[:, half:], out[:, :half].clamp(-2, 2)], 1) if half else out


class Drawer:
    """Draws layers one after the other and keeps the shape of what they make."""

    def __init__(self, random: np.random.Generator, shape: tuple[int, ...], exact: bool) -> None:
        self.random = random
        self.exact = exact
        self.x = torch.zeros(1, *shape)
        self.layers: list[nn.Module] = []
        self.drawn: list[str] = []

    def pick(self, *options: Any) -> Any:
        return options[self.random.integers(len(options))]

    def number(self, least: int, most: int) -> int:
        return int(self.random.integers(least, most + 1))

    def chance(self, percent: int) -> bool:
        return bool(self.random.integers(100) < percent)

    def add(self, layer: nn.Module) -> None:
        with torch.no_grad():
            self.x = layer.eval()(self.x)
        self.layers.append(layer)

    def size(self) -> tuple[int, int, int]:
        _, channels, height, width = self.x.shape
        return channels, height, width

    def channels_out(self, groups: int) -> int:
        wide = groups <= 2 and self.chance(20)  # so that more than one word of bits is needed
        return groups * int(self.pick(64, 66) if wide else self.pick(1, 2, 3, 5))

    def norm(self, channels: int, *, flat: bool = False) -> nn.Module:
        """BatchNorm with scales of every kind, or LayerNorm, or nothing."""
        kind = self.pick("batch", "batch", "batch", "batch", "none", "batch" if self.exact else "layer")
        if kind == "none":
            return nn.Identity()
        if kind == "layer":
            layer = ChannelLayerNorm(channels)
            _fill(layer.weight, self.random.normal(1, 0.5, channels))
            _fill(layer.bias, self.random.normal(0, 0.5, channels))
            return layer
        norm = (nn.BatchNorm1d if flat else nn.BatchNorm2d)(channels, eps=self.pick(1e-3, 1e-5))
        scales = self.random.choice([1.0, -1.0, 0.3, -0.4, -2.0, 0.0, 1e-30, -1e-7], channels)
        _fill(norm.weight, scales * self.random.uniform(0.5, 1.5, channels))
        _fill(norm.bias, self.random.choice([0.0, 1.0, -1.0], channels) * self.random.normal(0, 1, channels))
        _fill(norm.running_mean, np.round(self.random.normal(0, 3, channels) * 2) / self.random.choice([1, 2, 7]))
        _fill(norm.running_var, self.random.choice([1e-8, 0.5, 3.0, 400.0], channels))
        return norm

    def activation(self, channels: int) -> nn.Module:
        kind = self.pick("none", "none", "none", "relu", "prelu", "prelu-channel", "hardtanh", "relu6", "leaky")
        if kind in ("hardtanh", "relu6", "leaky"):
            return {"hardtanh": nn.Hardtanh(-1.5, 1), "relu6": nn.ReLU6(True), "leaky": nn.LeakyReLU(0.25)}[str(kind)]
        if kind == "relu":
            return nn.ReLU(inplace=self.chance(50))
        if kind.startswith("prelu"):
            layer = nn.PReLU(channels if kind == "prelu-channel" else 1)
            _fill(layer.weight, self.random.normal(0.2, 0.5, layer.weight.shape))
            return layer
        return nn.Identity()

    def padding(self, kernel: int, dilation: int) -> Any:
        reach = dilation * (kernel - 1)
        kind = self.pick("none", "same", "pair", "sides", "tf_same")
        if kind == "tf_same":
            return "tf_same"
        if kind == "sides":
            return tuple(self.number(0, reach) for _ in range(4))
        if kind == "pair":
            return (self.number(0, reach), self.number(0, reach))
        return reach // 2 if kind == "same" else 0

    def window(self) -> tuple[int, int]:
        """Give a kernel and a dilation that fit the map without padding."""
        _, height, width = self.size()
        kernel = self.number(1, min(3, height, width))
        dilation = self.pick(1, 1, 2) if 2 * (kernel - 1) < min(height, width) else 1
        return kernel, dilation

    def binary(self, *, first: bool = False) -> nn.Module:
        channels, _, _ = self.size()
        kernel, dilation = self.window()
        groups = self.pick(*[g for g in (1, 2, 3, min(channels, 6)) if channels % g == 0])
        out = self.channels_out(groups)
        return BinaryConv2d(
            channels,
            out,
            kernel,
            stride=self.pick(1, 1, 2, (2, 1)),
            padding=self.padding(kernel, dilation),
            dilation=dilation,
            groups=groups,
            pad_value=self.pick(0, 1, -1),
            input_quantizer=None if first and self.chance(70) else self.pick("ste", "approx", "swish"),
            latent=self.chance(20),
        )

    def float_conv(self) -> nn.Module:
        channels, _, _ = self.size()
        kernel, dilation = self.window()
        groups = self.pick(*[g for g in (1, min(channels, 6)) if channels % g == 0])
        layer = nn.Conv2d(
            channels,
            self.channels_out(groups),
            kernel,
            stride=self.pick(1, 2),
            padding=self.pick(0, dilation * (kernel - 1) // 2),
            dilation=dilation,
            groups=groups,
            bias=self.chance(50),
        )
        _fill(layer.weight, self.random.normal(0, 0.3, layer.weight.shape))
        return layer

    def pool(self) -> None:
        _, height, width = self.size()
        kernel = self.number(1, min(3, height, width))
        pad = self.number(0, kernel // 2)
        if self.exact or self.chance(50):
            self.add(nn.MaxPool2d(kernel, self.pick(1, 2), pad, ceil_mode=self.chance(30)))
        else:
            self.add(nn.AvgPool2d(kernel, self.pick(1, 2), pad, count_include_pad=self.chance(50)))

    def residual(self) -> None:
        channels, height, width = self.size()
        conv = BinaryConv2d(channels, channels, 3, padding=1, pad_value=self.pick(0, 1, -1))
        body = nn.Sequential(conv, self.norm(channels))
        if not self.exact and self.chance(50) and height % 2 == 0 and width % 2 == 0:
            wide = BinaryConv2d(channels, 2 * channels, 3, stride=2, padding=(0, 0, 1, 1), pad_value=self.pick(0, 1))
            body = nn.Sequential(wide, self.norm(2 * channels))
            narrow = nn.Conv2d(channels, 2 * channels, 1, bias=self.chance(50))
            self.add(Residual(body, nn.Sequential(nn.AvgPool2d(2), narrow, self.norm(2 * channels))))
            return
        self.add(Residual(body, nn.Identity()))

    def block(self, *, first: bool = False) -> None:
        """Draw one block: a convolution and what follows it, a pooling, or a residual block."""
        kind = (
            "conv"
            if first
            else self.pick(
                "conv",
                "conv",
                "operator",
                "operator",
                "residual",
                "pool",
                "in place",
                "conv" if self.exact else "float",
            )
        )
        if kind == "operator":
            name, layer = draw(self.size(), self.random, self.exact)
            self.drawn.append(name)
            return self.add(layer)
        if kind == "in place":
            channels = self.size()[0]
            return self.add(InPlace(BinaryConv2d(channels, channels, 3, padding=1)))
        if kind == "residual":
            return self.residual()
        if kind == "pool":
            return self.pool()
        if kind == "conv" and not first and self.chance(15):
            sides = (self.number(0, 2), self.number(0, 2), self.number(0, 2), self.number(0, 2))
            self.add(self.pick(nn.ZeroPad2d(sides), nn.ConstantPad2d(sides, -0.5), nn.ConstantPad2d(sides, 2.0)))
            conv: nn.Module = BinaryConv2d(self.size()[0], 3, 1)
        else:
            conv = self.float_conv() if kind == "float" else self.binary(first=first)
        self.add(conv)
        if self.chance(45) and min(self.size()[1:]) >= 2:
            self.add(nn.MaxPool2d(2, self.pick(1, 2)))
        self.add(self.norm(self.size()[0]))
        self.add(self.activation(self.size()[0]))
        return None

    def tail(self) -> None:
        """Draw the end: features and dense layers."""
        flatten: nn.Module = nn.Flatten()
        if not self.exact and self.chance(40):
            self.add(nn.AdaptiveAvgPool2d(1))
            if self.size()[0] > 1 and self.chance(30):
                flatten = Apply("squeeze", torch.squeeze)
        with torch.no_grad():
            self.x = self.x.flatten(1)
        self.layers.append(flatten)
        for _ in range(self.number(1, 2)):
            features = self.x.shape[1]
            out = self.pick(2, 5, 10)
            binary = self.exact or self.chance(60)
            product: nn.Module = nn.Linear(features, out, self.chance(50))
            if self.chance(30):
                name, multiply = self.pick(("mm", torch.mm), ("matmul", torch.matmul))
                product = Apply(name, multiply, self.random.normal(0, 0.3, (features, out)))
            self.add(BinaryLinear(features, out) if binary else product)
            self.add(self.norm(out, flat=True))
        if not self.exact and self.chance(20):
            self.add(nn.Softmax(dim=1))


def _fill(parameter: Any, values: Any) -> None:
    with torch.no_grad():
        parameter.copy_(torch.as_tensor(np.asarray(values), dtype=torch.float32).reshape(parameter.shape))


def network(seed: int, blocks: int, exact: bool) -> Case:
    """Give the network of a seed, of so many blocks behind the first, and images for it."""
    random = np.random.default_rng(seed)
    torch.manual_seed(seed)
    preprocessing = (GRID, GRID, None if exact else OFF_GRID, None)[random.integers(4)]
    channels = 3 if preprocessing else int(random.integers(1, 6))
    height, width = (int(size) for size in random.integers(4, 11, 2))
    drawer = Drawer(random, (channels, height, width), exact)
    drawer.block(first=True)
    for _ in range(blocks):
        drawer.block()
    drawer.tail()
    if preprocessing:
        images: NDArray[Any] = random.integers(0, 256, (3, height, width, channels), dtype=np.uint8)
    else:
        images = random.normal(0, 1, (3, height, width, channels)).astype(np.float32)
    module = nn.Sequential(*drawer.layers).eval()
    return Case(module, (channels, height, width), preprocessing, images, tuple(drawer.drawn))


def cases() -> st.SearchStrategy[Case]:
    """Draw a network and images for it."""
    return st.builds(network, st.integers(0, 2**32 - 1), st.integers(0, 5), st.booleans())
