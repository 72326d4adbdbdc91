"""Every operator that capture translates, each as a layer that a random network can draw.

A layer takes a map `[N, C, H, W]` and gives one. `test_random_networks.py` checks that they, and what else a random
network holds, are all operators of the table in `bitedge.export.capture.operators`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bitedge.train.nn import ChannelLayerNorm

Size = tuple[int, int, int]  # channels, height, width
Random = np.random.Generator


class Apply(nn.Module):
    """A function of a map and of parameters as a layer."""

    def __init__(self, name: str, function: Callable[..., Tensor], *parameters: Any) -> None:
        super().__init__()
        self.name, self.function = name, function
        self.weights = nn.ParameterList(nn.Parameter(torch.as_tensor(p, dtype=torch.float32)) for p in parameters)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the function."""
        return self.function(x, *self.weights)

    def extra_repr(self) -> str:
        """Give the name."""
        return self.name


@dataclass(frozen=True)
class Operator:
    """One kind of layer: how it is made, for which maps, and whether integers stay integers in it."""

    make: Callable[[Size, Random], nn.Module]
    fits: Callable[[Size], bool] = lambda _: True
    exact: bool = False


def _numbers(random: Random, *shape: int) -> Any:
    return random.normal(0.3, 1, shape).astype(np.float32)


def _apply(function: Callable[..., Tensor], *shapes: str) -> Callable[[Size, Random], nn.Module]:
    """Make layers of a function whose parameters have these shapes: "1", "c", "c11" or "1c11"."""

    def make(size: Size, random: Random) -> nn.Module:
        known = {"1": (1,), "c": (size[0],), "c11": (size[0], 1, 1), "1c11": (1, size[0], 1, 1)}
        return Apply(function.__name__, function, *(_numbers(random, *known[shape]) for shape in shapes))

    return make


def _module(layer: Callable[[Size], nn.Module]) -> Callable[[Size, Random], nn.Module]:
    def make(size: Size, random: Random) -> nn.Module:
        module = layer(size)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.add_(torch.from_numpy(random.normal(0, 0.3, tuple(parameter.shape)).astype(np.float32)))
        return module

    return make


def _even(size: Size) -> bool:
    return size[0] % 2 == 0


def _few(size: Size) -> bool:
    return size[0] <= 16


class Gate(nn.Module):
    """Squeeze and excitation by dense layers."""

    def __init__(self, channels: int, activation: nn.Module, gate: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(channels, 3), activation, nn.Linear(3, channels), gate)

    def forward(self, x: Tensor) -> Tensor:
        """Scale every channel by its gate."""
        n, c = x.shape[:2]
        return x * self.layers(F.adaptive_avg_pool2d(x, 1).view(n, c)).view(n, c, 1, 1).expand_as(x)  # type: ignore[no-any-return]


class Beside(nn.Module):
    """A map beside a convolution of itself."""

    def __init__(self, channels: int, bias: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 3, 1, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Concatenate channels."""
        return torch.cat([x, self.conv(x)], 1)


class PixelDense(nn.Module):
    """LayerNorm and a dense layer at every pixel, in NHWC, as in ConvNeXt."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm, self.dense = nn.LayerNorm(channels), nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        """Give a map again."""
        return self.dense(self.norm(x.permute(0, 2, 3, 1))).permute(0, 3, 1, 2)  # type: ignore[no-any-return]


def rprelu(x: Tensor, before: Tensor, slope: Tensor, after: Tensor) -> Tensor:
    return F.prelu(x + before.expand_as(x), slope) + after


def shuffled(x: Tensor) -> Tensor:
    n, c, h, w = x.shape
    return x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


def unflattened(x: Tensor) -> Tensor:
    return torch.unflatten(x, 1, (2, -1)).movedim((2,), (1,)).flatten(1, 2)


def halves(x: Tensor) -> Tensor:
    left, right = x.chunk(2, 1)
    return torch.cat([right, left.clamp_min(-2)], 1)


def split(x: Tensor) -> Tensor:
    first, *rest = torch.split(x, 1, 1)
    return torch.cat([*rest, first], 1)


def split_sizes(x: Tensor) -> Tensor:
    first, second = torch.split(x, [1, x.shape[1] - 1], 1)
    return torch.cat([second.narrow(1, 0, 1), first], 1)


def chosen(x: Tensor) -> Tensor:
    return torch.cat([channel.unsqueeze(1) for channel in (x.select(1, -1), *x.unbind(1)[:2])], 1)


def indexed(x: Tensor) -> Tensor:
    last = x.shape[1] - 1
    return torch.cat([x[:, [last, 0]], torch.index_select(x, 1, torch.tensor([0, last, 0]))], 1)


def there_and_back(x: Tensor) -> Tensor:
    return F.pixel_unshuffle(F.pixel_shuffle(x, 2), 2)


def squeezed(x: Tensor) -> Tensor:
    mean = x.mean((2, 3), keepdim=True).squeeze(-1).squeeze((2,))
    return x * torch.sigmoid(mean[:, :, None, None])


def summed(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x.sum((2, 3), keepdim=True) / x[0, 0].numel())


def peak(x: Tensor) -> Tensor:
    return x * F.hardsigmoid(torch.amax(x, (2, 3), keepdim=True))


def beside_zeros(x: Tensor) -> Tensor:
    return torch.cat([x, torch.zeros_like(x[:, :1])], 1)


def padded_channels(x: Tensor) -> Tensor:
    return F.pad(x, (0, 0, 0, 0, 1, 0))


def every_second(x: Tensor) -> Tensor:
    return x[:, :, ::2, ::2]


def arithmetic(x: Tensor, shift: Tensor, factor: Tensor) -> Tensor:
    return 0.5 - (x - shift) * factor / 1.5


def from_the_left(x: Tensor, shift: Tensor, factor: Tensor) -> Tensor:
    return shift + (-x) * factor


def square(x: Tensor) -> Tensor:
    return torch.square(torch.tanh(x))


def power(x: Tensor) -> Tensor:
    return torch.tanh(x) ** 2 - x


def clamps(x: Tensor) -> Tensor:
    return x.clamp_max(1.5).clamp(torch.tensor(-1.25), torch.tensor(3.0))


def indices(x: Tensor) -> Tensor:
    return F.max_pool2d(x, 2, 1, return_indices=True)[0]


def constant_pad(x: Tensor) -> Tensor:
    return F.avg_pool2d(torch.constant_pad_nd(x, (1, 1, 1, 1), 0.0), 2, 1)


def softmaxed(x: Tensor) -> Tensor:
    return torch.softmax(x / 4, 1)


def where_sign(x: Tensor) -> Tensor:
    return torch.where(x >= 0, 1.0, -1.0)


def cast_sign(x: Tensor, threshold: Tensor) -> Tensor:
    return 2 * (x >= threshold).float() - 1


def negated_sign(x: Tensor) -> Tensor:
    return torch.where(x < 0, -torch.ones_like(x), torch.full_like(x, 1.0))


def straight_through(x: Tensor) -> Tensor:
    soft = torch.clamp(x, -1, 1)
    return (where_sign(x) - soft).detach() + soft


def _large(size: Size) -> bool:
    return min(size[1:]) >= 2


OPERATORS: dict[str, Operator] = {
    **{
        function.__name__: Operator(_apply(function))
        for function in (torch.sigmoid, F.hardsigmoid, F.silu, F.hardswish, torch.tanh, F.gelu, square, power)
    },
    "gelu by tanh": Operator(_module(lambda _: nn.GELU("tanh"))),
    "relu6": Operator(_apply(lambda x: F.relu6(x))),
    "leaky": Operator(_module(lambda _: nn.LeakyReLU(0.25))),
    "clamps": Operator(_apply(clamps), exact=True),
    "rprelu": Operator(_apply(rprelu, "1c11", "c", "1c11")),
    "arithmetic": Operator(_apply(arithmetic, "c11", "1c11")),
    "from the left": Operator(_apply(from_the_left, "1", "c11")),
    "group norm": Operator(_module(lambda size: nn.GroupNorm(2 if size[0] % 2 == 0 else 1, size[0]))),
    "instance norm": Operator(_module(lambda size: nn.InstanceNorm2d(size[0], affine=True)), _large),
    "layer norm": Operator(_module(lambda size: ChannelLayerNorm(size[0]))),
    "layer norm of the map": Operator(_module(lambda size: nn.LayerNorm(size, elementwise_affine=False))),
    "dense at every pixel": Operator(_module(lambda size: PixelDense(size[0])), _few),
    "gate": Operator(_module(lambda size: Gate(size[0], nn.ReLU(inplace=True), nn.Sigmoid()))),
    "hard gate": Operator(_module(lambda size: Gate(size[0], nn.SiLU(), nn.Hardsigmoid()))),
    "gate by mean": Operator(_apply(squeezed)),
    "gate by sum": Operator(_apply(summed)),
    "gate by maximum": Operator(_apply(peak)),
    "average, partial windows": Operator(
        _module(lambda _: nn.AvgPool2d(2, ceil_mode=True, count_include_pad=False)), _large
    ),
    "average, padding counted": Operator(_module(lambda _: nn.AvgPool2d(3, 2, 1, ceil_mode=True)), _large),
    "adaptive average": Operator(_module(lambda size: nn.AdaptiveAvgPool2d((min(3, size[1]), min(2, size[2]))))),
    "adaptive maximum": Operator(_module(lambda size: nn.AdaptiveMaxPool2d((size[1], 1))), exact=True),
    "maximum with indices": Operator(_apply(indices), _large, exact=True),
    "same padding": Operator(_module(lambda size: nn.Conv2d(size[0], 4, 3, padding="same")), _few),
    "constant padding": Operator(_apply(constant_pad), _large),
    "beside": Operator(_module(lambda size: Beside(size[0], True)), _few),
    "beside zeros": Operator(_apply(beside_zeros), _few),
    "padded channels": Operator(_apply(padded_channels), _few),
    "softmax": Operator(_apply(softmaxed)),
    "shuffle": Operator(_apply(shuffled), _even, exact=True),
    "unflatten": Operator(_apply(unflattened), _even, exact=True),
    "channel shuffle": Operator(_module(lambda _: nn.ChannelShuffle(2)), _even, exact=True),
    "native channel shuffle": Operator(_apply(lambda x: torch.native_channel_shuffle(x, 2)), _even, exact=True),
    "halves": Operator(_apply(halves), _even, exact=True),
    "split": Operator(_apply(split), lambda size: 1 < size[0] <= 16, exact=True),
    "split by sizes": Operator(_apply(split_sizes), lambda size: size[0] > 1, exact=True),
    "chosen channels": Operator(_apply(chosen), lambda size: 1 < size[0] <= 16, exact=True),
    "indexed channels": Operator(_apply(indexed), exact=True),
    "flip": Operator(_apply(lambda x: torch.flip(x, (1,))), exact=True),
    "roll": Operator(_apply(lambda x: torch.roll(x, 1, 1)), exact=True),
    "pixel shuffle and back": Operator(_apply(there_and_back), lambda size: size[0] % 4 == 0, exact=True),
    "every second pixel": Operator(_apply(every_second), exact=True),
    "sign by where": Operator(_apply(where_sign), exact=True),
    "sign by cast": Operator(_apply(cast_sign, "c11"), exact=True),
    "sign by comparison": Operator(_apply(negated_sign), exact=True),
    "straight-through": Operator(_apply(straight_through), exact=True),
}


def draw(size: Size, random: Random, exact: bool) -> tuple[str, nn.Module]:
    """Draw one of the layers that fit a map."""
    names = [name for name, row in OPERATORS.items() if row.fits(size) and (row.exact or not exact)]
    name = names[int(random.integers(len(names)))]
    return name, OPERATORS[name].make(size, random)
