"""The functional forms of the supported layers: each is turned into the layer that means the same, then translated.

The tables at the end map what `torch.fx` records (a function, or the name of a tensor method) to the adapter.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bitedge.export.capture import layers
from bitedge.export.capture.builder import Builder, Symbol
from bitedge.train.nn.quantize import QUANTIZERS

Adapter = Callable[..., Any]


def _apply(b: Builder, layer: nn.Module, x: Symbol) -> Symbol:
    return layers.LAYERS[type(layer)](b, layer, x)


def _relu(b: Builder, x: Symbol, **_: Any) -> Symbol:
    return _apply(b, nn.ReLU(), x)


def _prelu(b: Builder, x: Symbol, weight: Tensor) -> Symbol:
    layer = nn.PReLU(weight.numel())
    layer.weight = nn.Parameter(weight.detach().reshape(-1))
    return _apply(b, layer, x)


def _softmax(b: Builder, x: Symbol, dim: int | None = None, *_: Any, **__: Any) -> Symbol:
    return _apply(b, nn.Softmax(dim), x)


def _dropout(b: Builder, x: Symbol, _p: float = 0.5, training: bool = True, *_: Any, **__: Any) -> Symbol:
    if training:
        raise b.refuse("drops out in evaluation; pass training=self.training")
    return x


def _conv2d(
    b: Builder,
    x: Symbol,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Symbol:
    outputs, depth, *kernel = weight.shape
    size = (int(kernel[0]), int(kernel[1]))
    layer = nn.Conv2d(depth * groups, outputs, size, stride, padding, dilation, groups, bias is not None, device="meta")
    layer.weight, layer.bias = nn.Parameter(weight.detach()), None if bias is None else nn.Parameter(bias.detach())
    return _apply(b, layer, x)


def _linear(b: Builder, x: Symbol, weight: Tensor, bias: Tensor | None = None) -> Symbol:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, device="meta")
    layer.weight = nn.Parameter(weight.detach())
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach())
    return _apply(b, layer, x)


def _batch_norm(
    b: Builder,
    x: Symbol,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    _momentum: float = 0.1,
    eps: float = 1e-5,
    **_: Any,
) -> Symbol:
    if training:
        raise b.refuse("uses batch statistics in evaluation; pass training=self.training")
    layer = nn.BatchNorm2d(x.shape[2], eps)
    layer.running_mean, layer.running_var = running_mean, running_var
    layer.weight = None if weight is None else nn.Parameter(weight.detach())  # type: ignore[assignment]
    layer.bias = None if bias is None else nn.Parameter(bias.detach())  # type: ignore[assignment]
    return _apply(b, layer, x)


def _max_pool2d(
    b: Builder,
    x: Symbol,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Symbol:
    return _apply(b, nn.MaxPool2d(kernel_size, stride, padding, dilation, return_indices, ceil_mode), x)


def _avg_pool2d(b: Builder, x: Symbol, kernel_size: Any, stride: Any = None, *args: Any, **options: Any) -> Symbol:
    return _apply(b, nn.AvgPool2d(kernel_size, stride, *args, **options), x)


def _adaptive_avg_pool2d(b: Builder, x: Symbol, output_size: Any) -> Symbol:
    return _apply(b, nn.AdaptiveAvgPool2d(output_size), x)


def _flatten(b: Builder, x: Symbol, start_dim: int = 0, end_dim: int = -1) -> Symbol:
    return _apply(b, nn.Flatten(start_dim, end_dim), x)


def _pad(b: Builder, x: Symbol, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Symbol:
    if mode != "constant" or len(pad) > 4 or len(pad) % 2:
        raise b.refuse(f"only constant padding of height and width is supported, not pad={tuple(pad)}, mode={mode!r}")
    left, right, top, bottom = (*pad, 0, 0)[:4]
    return _apply(b, nn.ConstantPad2d((left, right, top, bottom), value or 0.0), x)


def _add(b: Builder, x: Any, y: Any, *, alpha: float = 1) -> Symbol:
    if not isinstance(x, Symbol) or not isinstance(y, Symbol) or alpha != 1:
        raise b.refuse("only the sum of two layers' outputs is supported, not of a constant or with a factor")
    return layers.add(b, x, y)


def _mean(b: Builder, x: Symbol, dim: Any = None, keepdim: bool = False, **_: Any) -> Symbol:
    axes = () if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    if x.rank != 4 or sorted(axis % 4 for axis in axes) != [2, 3]:
        raise b.refuse(f"only the mean over height and width, dim=(2, 3), is supported, not dim={dim}")
    return layers.whole_mean(b, x, rank=4 if keepdim else 2)


def _reshape(b: Builder, x: Symbol, *shape: Any) -> Symbol:
    wanted = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
    count = x.shape[0] * x.shape[1] * x.shape[2]
    if len(wanted) == 2 and all(isinstance(size, int) for size in wanted) and wanted[1] in (-1, count):
        return layers.features(b, x)
    if wanted[1:] == (count, 1, 1) and x.order is None and x.shape[:2] == (1, 1):
        return Symbol(x.value, x.kind, x.shape, 4)
    raise b.refuse(f"only reshaping to [N, -1] is supported, not {list(wanted)} of {list(x.torch_shape())}")


def _size(_b: Builder, x: Symbol, dim: int | None = None) -> Any:
    return x.torch_shape() if dim is None else x.torch_shape()[dim]


def _getattr(b: Builder, x: Symbol, name: str) -> Any:
    if name != "shape":
        raise b.refuse(f"reads the attribute {name!r} of a tensor, which is not supported")
    return x.torch_shape()


def _sign(b: Builder, x: Symbol, *_: Any, **__: Any) -> Symbol:
    return b.sign(x)


def _same(_b: Builder, x: Symbol, *_: Any, **__: Any) -> Symbol:
    return x


FUNCTIONS: Mapping[Any, Adapter] = {
    F.conv2d: _conv2d,
    torch.conv2d: _conv2d,
    F.linear: _linear,
    F.batch_norm: _batch_norm,
    F.relu: _relu,
    torch.relu: _relu,
    F.prelu: _prelu,
    torch.prelu: _prelu,
    F.max_pool2d: _max_pool2d,
    torch.max_pool2d: _max_pool2d,
    F.avg_pool2d: _avg_pool2d,
    F.adaptive_avg_pool2d: _adaptive_avg_pool2d,
    F.dropout: _dropout,
    F.dropout2d: _dropout,
    F.softmax: _softmax,
    torch.softmax: _softmax,
    F.pad: _pad,
    torch.flatten: _flatten,
    torch.reshape: _reshape,
    torch.mean: _mean,
    torch.add: _add,
    operator.add: _add,
    operator.iadd: _add,
    getattr: _getattr,
    **dict.fromkeys(QUANTIZERS.values(), _sign),
}

METHODS: Mapping[str, Adapter] = {
    "relu": _relu,
    "relu_": _relu,
    "softmax": _softmax,
    "flatten": _flatten,
    "view": _reshape,
    "reshape": _reshape,
    "mean": _mean,
    "add": _add,
    "add_": _add,
    "size": _size,
    "contiguous": _same,
}

SUPPORTED = (
    "BinaryConv2d, BinaryLinear, ChannelLayerNorm, ste_sign, approx_sign, swish_sign (bitedge.train); "
    "Conv2d, Linear, BatchNorm1d, BatchNorm2d, ReLU, PReLU, MaxPool2d, AvgPool2d, AdaptiveAvgPool2d(1), Flatten, "
    "Dropout, Identity, Softmax, ZeroPad2d, ConstantPad2d (torch.nn) and their functional forms; "
    "x + y, torch.flatten, view and reshape to [N, -1], x.mean((2, 3))"
)
