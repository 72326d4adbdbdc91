"""Layers with weights or windows: products, normalizations, poolings, padding."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bitedge.export.capture.builder import Builder, Symbol, View, describe
from bitedge.export.capture.fold import FloatArray, ZeroWeightError, numbers, signs_and_scales
from bitedge.export.capture.views import as_features, as_map, as_value, is_bits, whole_pixels
from bitedge.export.ir import ops

Pads = tuple[int, int, int, int]


def pair(value: Any) -> tuple[int, int]:
    """Give (height, width) of torch's int-or-pair."""
    sizes = [value] if isinstance(value, int) else list(value)
    return int(sizes[0]), int(sizes[-1])


def _constant(b: Builder, weight: Any, what: str) -> Tensor:
    if not isinstance(weight, Tensor):
        raise b.refuse(f"its {what} depend on the image, which is not supported; expected parameters")
    return weight


def conv2d(
    b: Builder,
    x: Any,
    weight: Any,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Symbol:
    """Convolution; "same" padding puts the odd pixel at the bottom and right, as torch does."""
    source = as_map(b, x)
    kernels = numbers(_constant(b, weight, "weights")).transpose(0, 2, 3, 1)
    kernel, step = pair(kernels.shape[1:3]), pair(dilation)
    if isinstance(padding, str):
        total = [d * (k - 1) if padding == "same" else 0 for d, k in zip(step, kernel, strict=True)]
        pads = (total[0] // 2, total[1] // 2, total[0] - total[0] // 2, total[1] - total[1] // 2)
    else:
        pads = pair(padding) * 2
    return _product(b, source, kernels, ops.Window(kernel, pair(stride), pads, step, groups), bias)


def linear(b: Builder, x: Any, weight: Any, bias: Tensor | None = None) -> Any:
    """Dense layer: a 1x1 convolution over one pixel, its columns in the graph's order; or over each pixel."""
    matrix = numbers(_constant(b, weight, "weights"))
    if (isinstance(x, View) or x.rank == 4) and whole_pixels(x):
        base = x.base if isinstance(x, View) else x
        base = Symbol(base.value, base.kind, base.shape, 4, None, base.factor)
        result = _product(b, base, matrix.reshape(len(matrix), 1, 1, -1), ops.Window(), bias)
        pixels = x.index()[..., :1] // base.shape[2]
        return View(result, pixels * len(matrix) + np.arange(len(matrix)))
    source = as_features(b, x)
    ordered = matrix if source.order is None else matrix[:, source.order]
    return _product(b, source, ordered.reshape(len(matrix), 1, 1, -1), ops.Window(), bias)


def matmul(b: Builder, x: Any, matrix: Any) -> Any:
    """x @ W."""
    return linear(b, x, _constant(b, matrix, "factors").t())


def _product(b: Builder, x: Symbol, kernels: FloatArray, window: ops.Window, bias: Tensor | None) -> Symbol:
    """Emit the binary product if its weights are ±s per output channel, otherwise the float one."""
    kernels = np.ascontiguousarray(kernels)
    split = _split(b, x, kernels)
    shift = None if bias is None else numbers(bias)
    if split is None:
        x = b.plain(x)
        return b.emit(ops.Conv2d(kernels, window, epilogue=_biased(shift)), x)
    signs, scales = split
    if not is_bits(x) and bool((scales == 1).all()):
        return b.emit(ops.Conv2d(signs.astype(np.float32), window, binary=True, epilogue=_biased(shift)), x)
    if is_bits(x):
        factor = np.float32(x.factor)
        product: ops.Op = ops.BinaryConv2d(signs if factor > 0 else -signs, window)
        scales = scales * np.abs(factor)
    else:
        product = ops.Conv2d(signs.astype(np.float32), window, binary=True)
    steps: list[tuple[ops.Op, str]] = [(product, "product")]
    if (scales != 1).any():
        steps.append((ops.Scale(scales), "scaled"))
    if shift is not None:
        steps.append((ops.Shift(shift), "shifted"))
    return b.chain(Symbol(x.value, x.kind, x.shape, x.rank), *steps)


def _biased(bias: FloatArray | None) -> ops.Affine | None:
    return None if bias is None else ops.Affine(np.ones(len(bias), np.float32), bias)


def _split(b: Builder, x: Symbol, kernels: FloatArray) -> tuple[NDArray[np.int8], FloatArray] | None:
    """Give ±1 weights and their scales, where that is meant: on bits, or if a float layer's weights have two signs."""
    try:
        split = signs_and_scales(kernels)
    except ZeroWeightError as error:
        if is_bits(x):
            raise b.refuse(f"{error}: torch.sign(0) is 0; use torch.where(w >= 0, s, -s), or bitedge's sign") from None
        return None
    if split is None or is_bits(x):
        return split
    meant = kernels[0].size > 1 and bool((split[0] > 0).any() and (split[0] < 0).any())
    return split if meant else None


def batch_norm(
    b: Builder, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, _momentum: float, eps: float
) -> tuple[Symbol, None, None]:
    """BatchNorm in evaluation: running statistics, weight and bias (1 and 0 when it has none)."""
    x = b.plain(as_value(b, x))
    means, variances = _arranged(x, mean), _arranged(x, variance)
    scale = np.ones_like(means) if weight is None else _arranged(x, weight)
    shift = np.zeros_like(means) if bias is None else _arranged(x, bias)
    return b.emit(ops.BatchNorm(means, variances, scale, shift, eps), x, order=x.order), None, None


def _arranged(x: Symbol, parameter: Tensor) -> FloatArray:
    array = numbers(parameter).reshape(-1)
    return array if x.order is None else array[x.order]


def layer_norm(
    b: Builder, x: Any, sizes: list[int], weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> Any:
    """LayerNorm over channels at each pixel; over a whole map it is GroupNorm with one group."""
    count = int(np.prod(sizes))
    scale = np.ones(count, np.float32) if weight is None else numbers(weight).reshape(-1)
    shift = np.zeros(count, np.float32) if bias is None else numbers(bias).reshape(-1)
    base = b.plain(x.base if isinstance(x, View) else x)
    if isinstance(x, Symbol) and x.rank == 4 and tuple(sizes) == x.torch_shape():
        rows = [array.reshape(sizes[0], -1) for array in (scale, shift)]
        if any((row != row[:, :1]).any() for row in rows):
            raise b.refuse("LayerNorm with another weight for each pixel is not supported; normalize over channels")
        return b.emit(ops.GroupNorm(1, rows[0][:, 0].copy(), rows[1][:, 0].copy(), eps), base)
    if isinstance(x, Symbol) and x.rank == 2:
        arranged = [array if x.order is None else array[x.order] for array in (scale, shift)]
        return b.emit(ops.LayerNorm(arranged[0], arranged[1], eps), base, order=x.order)
    if len(sizes) != 1 or not whole_pixels(x):
        raise b.refuse(f"LayerNorm over {list(sizes)} of {describe(x)} is not supported; normalize over channels")
    result = b.emit(ops.LayerNorm(scale, shift, eps), Symbol(base.value, base.kind, base.shape, 4))
    return View(result, x.index())


def group_norm(
    b: Builder, x: Any, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> Symbol:
    """GroupNorm, on maps or on features."""
    if not isinstance(x, Symbol) or x.order is not None:
        raise b.refuse(f"takes a map [N, C, H, W], the input is {describe(x)}")
    channels = x.shape[2]
    scale = np.ones(channels, np.float32) if weight is None else numbers(weight)
    shift = np.zeros(channels, np.float32) if bias is None else numbers(bias)
    return b.emit(ops.GroupNorm(groups, scale, shift, eps), b.plain(x))


def instance_norm(
    b: Builder, x: Any, weight: Any, bias: Any, mean: Any, _variance: Any, own: bool, *rest: Any
) -> Symbol:
    """InstanceNorm without running statistics: GroupNorm with a group per channel."""
    if mean is not None or not own:
        raise b.refuse("InstanceNorm with running statistics is not supported; use BatchNorm2d")
    return group_norm(b, x, as_map(b, x).shape[2], weight, bias, rest[1])


def max_pool2d(
    b: Builder, x: Any, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Symbol:
    """Max-pool; `ceil_mode` becomes padding at the bottom and right, which never wins. -1 times bits: their minimum."""
    source = as_map(b, x)
    window = ops.Window(pair(kernel), pair(stride or kernel), pair(padding) * 2, pair(dilation))
    minimum = np.ones(source.shape[2], np.bool_) if source.factor < 0 else None
    op = ops.MaxPool2d(_ceil(window, source) if ceil_mode else window, minimum)
    return b.emit(op, source, factor=source.factor)


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


def avg_pool2d(
    b: Builder,
    x: Any,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> Symbol:
    """Average pooling; what `ceil_mode` adds at the bottom and right never counts."""
    source = b.plain(as_map(b, x))
    if divisor is not None:
        raise b.refuse("divisor_override is not supported; multiply the result instead")
    window = ops.Window(pair(kernel), pair(stride or kernel), pair(padding) * 2)
    if not ceil_mode:
        return b.emit(ops.AvgPool2d(window, count_include_pad), source)
    wide = _ceil(window, source)
    overhang = (wide.pads[2] - window.pads[2], wide.pads[3] - window.pads[3])
    return b.emit(ops.AvgPool2d(wide, count_include_pad, overhang), source)


def adaptive_avg_pool2d(b: Builder, x: Any, size: Any) -> Symbol:
    """Average to a map of a given size; to one pixel it is the mean of the whole."""
    source = b.plain(as_map(b, x))
    height, width = (have if want is None else int(want) for want, have in zip(size, source.shape[:2], strict=True))
    if (height, width) == (1, 1):
        return b.emit(ops.AvgPool2d(ops.Window(source.shape[:2], source.shape[:2])), source)
    if (height, width) == source.shape[:2]:
        return source
    if source.shape[0] % height == 0 and source.shape[1] % width == 0:
        kernel = (source.shape[0] // height, source.shape[1] // width)
        return b.emit(ops.AvgPool2d(ops.Window(kernel, kernel)), source)
    return b.emit(ops.AdaptiveAvgPool2d((height, width)), source)


def adaptive_max_pool2d(b: Builder, x: Any, size: Any) -> tuple[Symbol, None]:
    """Maximum to a map of a given size that divides the input's."""
    source = as_map(b, x)
    if source.shape[0] % size[0] or source.shape[1] % size[1]:
        raise b.refuse(f"adaptive max-pooling of {source.shape[:2]} to {tuple(size)} has windows of several sizes")
    kernel = (source.shape[0] // size[0], source.shape[1] // size[1])
    return max_pool2d(b, source, kernel), None


def pad(b: Builder, x: Any, sizes: list[int], mode: str = "constant", value: float | None = None) -> Symbol:
    """Constant padding: of a map, a node that lowering folds into what follows; of channels, zeros beside them."""
    source = as_map(b, x)
    if mode != "constant":
        raise b.refuse(f"padding_mode={mode!r} is not supported, only 'zeros' and 'constant'")
    if min(sizes) < 0:
        raise b.refuse(f"negative padding (cropping) is not supported: {sizes}")
    left, right, top, bottom, front, back, *batch = (*sizes, *[0] * (8 - len(sizes)))
    number = (value or 0.0) / source.factor
    if any(batch) or ((front or back) and number != 0):
        raise b.refuse(f"only height, width, and channels with 0, can be padded, not pad={sizes} with {value}")
    if front or back:
        index = np.concatenate([np.full(front, -1), np.arange(source.shape[2]), np.full(back, -1)]).astype(np.int32)
        spatial = any((left, right, top, bottom))
        source = b.emit(ops.GatherChannels(index), b.plain(source), inner="channels" if spatial else None)
    if not any((left, right, top, bottom)):
        return source
    own = "padding" in b.kind or not b.kind
    return b.emit(
        ops.Pad((top, left, bottom, right), number), source, inner=None if own else "padded", factor=source.factor
    )
