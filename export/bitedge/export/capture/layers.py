"""One translation per torch layer: from module and symbols to nodes of the graph. The table is at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from bitedge.export.capture.builder import Builder, Symbol, numbers
from bitedge.export.ir import ops
from bitedge.export.ir.graph import Kind
from bitedge.train.nn import BinaryConv2d, BinaryLinear, ChannelLayerNorm

Handler = Callable[..., Symbol]


def pair(value: Any) -> tuple[int, int]:
    """Give (height, width) of torch's int-or-pair."""
    height, width = (value, value) if isinstance(value, int) else value
    return int(height), int(width)


def _need_map(b: Builder, x: Symbol) -> None:
    if x.rank != 4:
        raise b.refuse(f"takes a map [N, C, H, W], the input is {list(x.torch_shape())}")


def _need_vector(b: Builder, x: Symbol) -> None:
    if x.rank != 2:
        raise b.refuse(f"takes features [N, F], the input is {list(x.torch_shape())}; flatten it first")


def _kernels(weight: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(weight.transpose(0, 2, 3, 1))


def _biased(bias: Tensor | None) -> ops.Affine | None:
    return None if bias is None else ops.Affine(np.ones(len(bias), np.float32), numbers(bias))


def conv2d(b: Builder, layer: nn.Conv2d, x: Symbol) -> Symbol:
    """nn.Conv2d; "same" padding puts the odd pixel at the bottom and right, as torch does."""
    _need_map(b, x)
    kernel, dilation = pair(layer.kernel_size), pair(layer.dilation)
    if isinstance(layer.padding, str):
        total = [d * (k - 1) if layer.padding == "same" else 0 for d, k in zip(dilation, kernel, strict=True)]
        pads = (total[0] // 2, total[1] // 2, total[0] - total[0] // 2, total[1] - total[1] // 2)
    else:
        pads = pair(layer.padding) * 2
    if layer.padding_mode != "zeros" and any(pads):
        raise b.refuse(f"padding_mode={layer.padding_mode!r} is not supported, only 'zeros'")
    window = ops.Window(kernel, pair(layer.stride), pads, dilation, layer.groups)
    return b.emit(ops.Conv2d(_kernels(numbers(layer.weight)), window, epilogue=_biased(layer.bias)), x)


def linear(b: Builder, layer: nn.Linear, x: Symbol) -> Symbol:
    """nn.Linear: a 1x1 convolution over one pixel, its columns in the graph's order."""
    _need_vector(b, x)
    weight = _columns(numbers(layer.weight), x)
    return b.emit(ops.Conv2d(weight, epilogue=_biased(layer.bias)), x)


def _columns(weight: NDArray[Any], x: Symbol) -> NDArray[Any]:
    ordered = weight if x.order is None else weight[:, x.order]
    return np.ascontiguousarray(ordered.reshape(len(weight), 1, 1, -1))


def _binary_weight(b: Builder, layer: BinaryConv2d | BinaryLinear) -> NDArray[np.int8]:
    if layer.real:
        raise b.refuse("it belongs to a float twin, a teacher without any sign; export the network that it taught")
    if not layer.latent and not bool((layer.weight.detach().abs() == 1).all()):
        raise b.refuse("its weights are not exactly ±1; take one step of a binary optimizer, or binarize them")
    weight: NDArray[np.int8] = layer.binary_weight().cpu().numpy().astype(np.int8)
    return weight


def binary_conv2d(b: Builder, layer: BinaryConv2d, x: Symbol) -> Symbol:
    """Sign, pad with the layer's value, integer product; on values that are no bits, a float convolution with ±1."""
    _need_map(b, x)
    weight = _kernels(_binary_weight(b, layer))
    source = x if layer.input_quantizer is None else b.sign(x)
    pads = layer.pads(source.shape[0], source.shape[1])
    window = ops.Window(layer.kernel_size, layer.stride, pads, layer.dilation, layer.groups)
    if source.kind is Kind.BITS:
        return b.emit(ops.BinaryConv2d(weight, window, layer.pad_value), source)
    if layer.pad_value != 0 and any(pads):
        padded = ops.Pad(pads, float(layer.pad_value))
        source = b.emit(padded, source, name=b.unique(f"{b.name}.padded"))
        window = ops.Window(layer.kernel_size, layer.stride, dilation=layer.dilation, groups=layer.groups)
    return b.emit(ops.Conv2d(weight.astype(np.float32), window, binary=True), source)


def binary_linear(b: Builder, layer: BinaryLinear, x: Symbol) -> Symbol:
    """The dense form of `binary_conv2d`."""
    _need_vector(b, x)
    source = x if layer.input_quantizer is None else b.sign(x)
    weight = _columns(_binary_weight(b, layer), source)
    if source.kind is Kind.BITS:
        return b.emit(ops.BinaryConv2d(weight), source)
    return b.emit(ops.Conv2d(weight.astype(np.float32), binary=True), source)


def batch_norm(b: Builder, layer: nn.BatchNorm1d | nn.BatchNorm2d, x: Symbol) -> Symbol:
    """BatchNorm in evaluation: running statistics, weight and bias (1 and 0 when it has none)."""
    if layer.running_mean is None or layer.running_var is None:
        raise b.refuse("has no running statistics (track_running_stats=False)")
    mean, variance = x.arrange(layer.running_mean), x.arrange(layer.running_var)
    weight = np.ones_like(mean) if layer.weight is None else x.arrange(layer.weight)
    bias = np.zeros_like(mean) if layer.bias is None else x.arrange(layer.bias)
    return b.emit(ops.BatchNorm(mean, variance, weight, bias, layer.eps), x, order=x.order)


def layer_norm(b: Builder, layer: ChannelLayerNorm, x: Symbol) -> Symbol:
    """LayerNorm over channels at each pixel."""
    op = ops.LayerNorm(x.arrange(layer.weight), x.arrange(layer.bias), layer.eps)
    return b.emit(op, x, order=x.order)


def relu(b: Builder, _: nn.ReLU, x: Symbol) -> Symbol:
    """nn.ReLU."""
    return b.emit(ops.Relu(), x, order=x.order)


def prelu(b: Builder, layer: nn.PReLU, x: Symbol) -> Symbol:
    """nn.PReLU with one slope, or one per channel."""
    return b.emit(ops.Prelu(x.arrange(layer.weight)), x, order=x.order)


def max_pool2d(b: Builder, layer: nn.MaxPool2d, x: Symbol) -> Symbol:
    """nn.MaxPool2d; `ceil_mode` becomes padding at the bottom and right, which never wins."""
    _need_map(b, x)
    if layer.return_indices:
        raise b.refuse("return_indices=True is not supported")
    stride = pair(layer.kernel_size if layer.stride is None else layer.stride)
    window = ops.Window(pair(layer.kernel_size), stride, pair(layer.padding) * 2, pair(layer.dilation))
    if layer.ceil_mode:
        window = _ceil(window, x)
    return b.emit(ops.MaxPool2d(window), x)


def _ceil(window: ops.Window, x: Symbol) -> ops.Window:
    """Widen the pads so that the last, partial window counts, unless it would start beyond the map (torch's rule)."""
    extra = []
    for axis in (0, 1):
        size, before, after = x.shape[axis], window.pads[axis], window.pads[axis + 2]
        span, step = window.dilation[axis] * (window.kernel[axis] - 1) + 1, window.stride[axis]
        count = -(-(size + before + after - span) // step) + 1
        if (count - 1) * step >= size + before:
            count -= 1
        extra.append(max((count - 1) * step + span - size - before - after, 0))
    top, left, bottom, right = window.pads
    return ops.Window(window.kernel, window.stride, (top, left, bottom + extra[0], right + extra[1]), window.dilation)


def avg_pool2d(b: Builder, layer: nn.AvgPool2d, x: Symbol) -> Symbol:
    """nn.AvgPool2d."""
    _need_map(b, x)
    if layer.divisor_override is not None:
        raise b.refuse("divisor_override is not supported")
    window = ops.Window(pair(layer.kernel_size), pair(layer.stride), pair(layer.padding) * 2)
    if layer.ceil_mode and _ceil(window, x) != window:
        raise b.refuse(f"ceil_mode=True with a partial window on a map of {x.shape[0]}x{x.shape[1]} is not supported")
    return b.emit(ops.AvgPool2d(window, layer.count_include_pad), x)


def global_avg_pool2d(b: Builder, layer: nn.AdaptiveAvgPool2d, x: Symbol) -> Symbol:
    """nn.AdaptiveAvgPool2d(1): the mean over the whole map."""
    _need_map(b, x)
    if layer.output_size not in (1, (1, 1)):
        raise b.refuse(f"only AdaptiveAvgPool2d(1) is supported, not output_size={layer.output_size}")
    return whole_mean(b, x, rank=4)


def whole_mean(b: Builder, x: Symbol, *, rank: int) -> Symbol:
    """Average the whole map to one pixel."""
    return b.emit(ops.AvgPool2d(ops.Window(x.shape[:2], x.shape[:2])), x, rank=rank)


def flatten(b: Builder, layer: nn.Flatten, x: Symbol) -> Symbol:
    """nn.Flatten from dimension 1: features, in the graph's own order."""
    if layer.start_dim != 1 or layer.end_dim not in (-1, x.rank - 1):
        raise b.refuse(f"only flattening of all but the batch is supported, not {layer}")
    return features(b, x)


def features(b: Builder, x: Symbol) -> Symbol:
    """Make a map into features `[N, F]` and remember torch's order of them."""
    height, width, channels = x.shape
    if x.rank == 2:
        return x
    if height * width == 1:
        return Symbol(x.value, x.kind, x.shape, 2)
    order = np.arange(channels * height * width).reshape(channels, height, width).transpose(1, 2, 0).ravel()
    return b.emit(ops.Flatten(), x, rank=2, order=None if channels == 1 else order)


def softmax(b: Builder, layer: nn.Softmax, x: Symbol) -> Symbol:
    """nn.Softmax over channels."""
    if layer.dim not in (1, 1 - x.rank):
        raise b.refuse(f"softmax is supported over channels (dim=1), not dim={layer.dim}")
    return b.emit(ops.Softmax(), x, order=x.order)


def pad(b: Builder, layer: nn.ZeroPad2d | nn.ConstantPad2d, x: Symbol) -> Symbol:
    """nn.ZeroPad2d and nn.ConstantPad2d: a node that lowering folds into what follows."""
    _need_map(b, x)
    left, right, top, bottom = layer.padding
    if min(left, right, top, bottom) < 0:
        raise b.refuse(f"negative padding (cropping) is not supported: {layer.padding}")
    return b.emit(ops.Pad((top, left, bottom, right), float(layer.value)), x)


def unchanged(_b: Builder, _: nn.Module, x: Symbol) -> Symbol:
    """nn.Identity, and dropout in evaluation."""
    return x


def add(b: Builder, x: Symbol, y: Symbol) -> Symbol:
    """Add two tensors of one shape."""
    same_order = x.order is y.order
    if x.order is not None and y.order is not None:
        same_order = np.array_equal(x.order, y.order)
    if x.shape != y.shape or x.rank != y.rank or not same_order:
        raise b.refuse(f"adds tensors of different shapes, {list(x.torch_shape())} and {list(y.torch_shape())}")
    return b.emit(ops.Add(), x, y, order=x.order)


LAYERS: Mapping[type[nn.Module], Handler] = {
    BinaryConv2d: binary_conv2d,
    BinaryLinear: binary_linear,
    ChannelLayerNorm: layer_norm,
    nn.Conv2d: conv2d,
    nn.Linear: linear,
    nn.BatchNorm1d: batch_norm,
    nn.BatchNorm2d: batch_norm,
    nn.ReLU: relu,
    nn.PReLU: prelu,
    nn.MaxPool2d: max_pool2d,
    nn.AvgPool2d: avg_pool2d,
    nn.AdaptiveAvgPool2d: global_avg_pool2d,
    nn.Flatten: flatten,
    nn.Dropout: unchanged,
    nn.Dropout2d: unchanged,
    nn.Identity: unchanged,
    nn.Softmax: softmax,
    nn.ZeroPad2d: pad,
    nn.ConstantPad2d: pad,
}
