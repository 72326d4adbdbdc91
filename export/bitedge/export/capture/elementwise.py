"""Elementwise operators, sums and products of tensors, and reductions over the map."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from bitedge.export.capture.builder import Builder, Symbol, View, describe
from bitedge.export.capture.fold import numbers, uniform
from bitedge.export.capture.idioms import Step, start
from bitedge.export.capture.views import as_map, as_value, is_bits, rearrange
from bitedge.export.ir import ops

Source = Symbol | View
aten = torch.ops.aten


def pointwise(b: Builder, op: ops.Op, x: Source) -> Any:
    """Apply an operator to each element, wherever it stands."""
    base = b.plain(b.pointwise_source(x))
    return b.reviewed(x, b.emit(op, base, order=base.order))


def clamp(b: Builder, x: Source, low: Any = None, high: Any = None) -> Any:
    """Clamp to one range for all elements."""
    limits = []
    for limit, free in ((low, -np.inf), (high, np.inf)):
        number = uniform(limit) if isinstance(limit, Tensor) else limit
        if number is None and limit is not None:
            raise b.refuse("clamps each element to another range, which is not supported; use one range")
        limits.append(free if number is None else float(number))
    if limits == [0.0, np.inf]:
        return pointwise(b, ops.Relu(), x)
    return pointwise(b, ops.Clamp(limits[0], limits[1]), x)


def gelu(b: Builder, x: Source, approximate: str = "none") -> Any:
    """GELU, exact or by tanh."""
    return pointwise(b, ops.Function("gelu" if approximate == "none" else "gelu_tanh"), x)


def prelu(b: Builder, x: Source, weight: Any) -> Any:
    """PReLU with one slope, or one per channel."""
    if not isinstance(weight, Tensor):
        raise b.refuse("its slopes depend on the image, which is not supported")
    slope = numbers(weight).reshape(-1)
    if slope.size == 1:
        return pointwise(b, ops.Prelu(slope), x)
    source = as_value(b, x)
    return pointwise(b, ops.Prelu(slope if source.order is None else slope[source.order]), source)


def leaky_relu(b: Builder, x: Source, slope: float = 0.01) -> Any:
    """LeakyReLU: PReLU with one slope."""
    return pointwise(b, ops.Prelu(b.one(slope)), x)


def add(b: Builder, x: Any, y: Any, *, alpha: Any = 1) -> Any:
    """x + alpha·y."""
    if isinstance(y, Symbol | View):
        if alpha != 1:
            y = scale(b, y, torch.tensor(float(alpha)), inner="scaled")
        return total(b, x, y) if isinstance(x, Symbol | View) else shift(b, y, torch.as_tensor(x))
    return shift(b, x, torch.as_tensor(y) * alpha)


def subtract(b: Builder, x: Any, y: Any, *, alpha: Any = 1) -> Any:
    """x - alpha·y."""
    return add(b, x, y, alpha=-alpha)


def reverse_subtract(b: Builder, x: Any, y: Any, *, alpha: Any = 1) -> Any:
    """y - alpha·x."""
    return add(b, y, x, alpha=-alpha)


def negate(b: Builder, x: Source) -> Any:
    """-x."""
    return scale(b, x, torch.tensor(-1.0))


def multiply(b: Builder, x: Any, y: Any) -> Any:
    """x·y: of two tensors, or of one and a parameter."""
    if not isinstance(x, Symbol | View):
        x, y = y, x
    if isinstance(y, Symbol | View):
        return product(b, x, y)
    return scale(b, x, torch.as_tensor(y))


def divide(b: Builder, x: Any, y: Any) -> Any:
    """x / y by a parameter."""
    if not isinstance(x, Symbol | View) or isinstance(y, Symbol | View):
        raise b.refuse("divides by a tensor that depends on the image, which is not supported")
    return scale(b, x, 1 / torch.as_tensor(y, dtype=torch.float32))


def power(b: Builder, x: Source, exponent: Any) -> Any:
    """x²; other powers are refused."""
    if exponent == 1:
        return x
    if exponent != 2:
        raise b.refuse(f"the power {exponent} is not supported, only 2")
    return product(b, x, x)


def scale(b: Builder, x: Source, factor: Tensor, inner: str | None = None) -> Any:
    """x times a parameter; one number times bits stays bits."""
    number = uniform(factor)
    if number is not None and factor.numel() == 1:
        base = b.pointwise_source(x)
        if number == 1:
            return x
        if is_bits(base) and number != 0:
            return b.reviewed(x, base.scaled(float(np.float32(base.factor) * np.float32(number))))
        return b.reviewed(x, b.emit(ops.Scale(b.one(number)), b.plain(base), inner=inner, order=base.order))
    source = b.plain(as_value(b, x))
    return b.emit(ops.Scale(b.per_channel(source, factor)), source, inner=inner, order=source.order)


def shift(b: Builder, x: Source, bias: Tensor) -> Any:
    """x plus a parameter."""
    number = uniform(bias)
    if number == 0:
        return x
    if bias.numel() == 1 and number is not None:
        return pointwise(b, ops.Shift(b.one(number)), x)
    source = b.plain(as_value(b, x))
    return b.emit(ops.Shift(b.per_channel(source, bias)), source, order=source.order)


def _same_order(x: Symbol, y: Symbol) -> bool:
    return x.order is y.order or (x.order is not None and y.order is not None and np.array_equal(x.order, y.order))


def total(b: Builder, x: Source, y: Source) -> Any:
    """Add two tensors of one shape."""
    if (
        isinstance(x, View)
        and isinstance(y, View)
        and np.array_equal(x.places, y.places)
        and x.base.shape == y.base.shape
    ):
        return View(b.emit(ops.Add(), b.plain(x.base), b.plain(y.base)), x.places)
    if not (
        isinstance(x, Symbol) and isinstance(y, Symbol) and x.torch_shape() == y.torch_shape() and _same_order(x, y)
    ):
        raise b.refuse(f"adds tensors of different shapes, {describe(x)} and {describe(y)}, which is not supported")
    return b.emit(ops.Add(), b.plain(x), b.plain(y), order=x.order)


def product(b: Builder, x: Source, y: Source) -> Any:
    """Multiply two tensors of one shape, or a map and one number per channel."""
    if isinstance(x, Symbol) and isinstance(y, Symbol):
        if x.rank == y.rank == 4 and x.shape[:2] == (1, 1) != y.shape[:2]:
            x, y = y, x
        vector = x.rank == y.rank == 4 and y.shape == (1, 1, x.shape[2])
        if vector or (x.torch_shape() == y.torch_shape() and _same_order(x, y)):
            return b.emit(ops.Multiply(), b.plain(x), b.plain(y), order=x.order)
    raise b.refuse(
        f"multiplies tensors of the shapes {describe(x)} and {describe(y)}, which is not supported; "
        "expected one shape, or a map and one number per channel [N, C, 1, 1]"
    )


def compare(b: Builder, target: Any, x: Any, y: Any) -> Step:
    """Compare a tensor with a number, a parameter or another tensor: the sign of their difference."""
    if not isinstance(x, Symbol | View):
        x, y, target = y, x, _MIRRORED[target]
    if isinstance(y, Symbol | View):
        x = total(b, x, scale(b, y, torch.tensor(-1.0), inner="negated"))
    else:
        threshold = torch.as_tensor(y, dtype=torch.float32)
        if uniform(threshold) != 0:
            x = shift(b, x, -threshold)
    return start(target.overloadpacket.Scalar, x, 0)


_MIRRORED = {
    getattr(getattr(aten, one), kind): getattr(getattr(aten, other), kind)
    for one, other in (("ge", "le"), ("le", "ge"), ("gt", "lt"), ("lt", "gt"), ("eq", "eq"), ("ne", "ne"))
    for kind in ("Scalar", "Tensor")
}


def _reduce(b: Builder, x: Any, dim: Any, keepdim: bool, maximum: bool) -> Any:
    axes = [] if dim is None else [dim] if isinstance(dim, int) else list(dim)
    if isinstance(x, View):
        return _reduce_view(b, x, axes, keepdim, maximum)
    source = as_map(b, x, "reduces")
    found = sorted(axis % 4 for axis in axes)
    if not found or not set(found) <= {2, 3}:
        raise b.refuse(f"only the mean and maximum over height and width, dim=(2, 3), are supported, not dim={dim}")
    kernel = (source.shape[0] if 2 in found else 1, source.shape[1] if 3 in found else 1)
    window = ops.Window(kernel, kernel)
    if maximum and source.factor > 0:
        result = b.emit(ops.MaxPool2d(window), source, factor=source.factor)
    else:
        result = b.emit(ops.MaxPool2d(window) if maximum else ops.AvgPool2d(window), b.plain(source))
    if keepdim:
        return result
    if found == [2, 3]:
        return Symbol(result.value, result.kind, result.shape, 2, None, result.factor)
    return rearrange(b, aten.squeeze.dims, result, found)


def _reduce_view(b: Builder, x: View, axes: list[int], keepdim: bool, maximum: bool) -> Any:
    """Reduce a map whose pixels were flattened, `[N, C, H·W]` or `[N, H·W, C]`, over all of them."""
    places, (height, width, depth) = x.places, x.base.shape
    inner = tuple(axis % (places.ndim + 1) - 1 for axis in axes)
    kept = [axis for axis in range(places.ndim) if axis not in inner]
    rows = np.sort(places.transpose(*kept, *(axis for axis in inner if axis >= 0)).reshape(-1, height * width))
    every = np.arange(height * width) * depth + np.arange(depth)[:, None]  # of each channel all pixels
    if [places.shape[axis] for axis in kept] != [depth] or not np.array_equal(rows, every):
        raise b.refuse(f"reduces {describe(x)} over {axes}, which is not supported; reduce over all pixels")
    result = _reduce(b, Symbol(x.base.value, x.base.kind, x.base.shape, 4, None, x.base.factor), [2, 3], False, maximum)
    shape = [size if axis in kept else 1 for axis, size in enumerate(places.shape)]
    return View(result, np.arange(depth).reshape(shape)) if keepdim else result


def mean(b: Builder, x: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> Any:
    """Mean over the map."""
    return _reduce(b, x, dim, keepdim, maximum=False)


def maximum(b: Builder, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """Maximum over the map."""
    return _reduce(b, x, dim, keepdim, maximum=True)


def summed(b: Builder, x: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> Any:
    """Sum over the map: its mean times the number of pixels."""
    average = mean(b, x, dim, keepdim)
    before, after = (one.base.shape if isinstance(one, View) else one.shape for one in (x, average))
    b.call(f"{b.layer}.total")
    return scale(b, average, torch.tensor(float(np.prod(before) / np.prod(after))))


def softmax(b: Builder, x: Any, dim: int, *_: Any) -> Symbol:
    """Softmax over channels."""
    if not isinstance(x, Symbol) or dim not in (1, 1 - x.rank):
        raise b.refuse(f"softmax is supported over channels (dim=1), not dim={dim} of {describe(x)}")
    return b.emit(ops.Softmax(), b.plain(x), order=x.order)


def concat(b: Builder, tensors: list[Any], dim: int = 0) -> Symbol:
    """Concatenate along channels; a constant of zeros makes channels of zeros."""
    parts = [part for part in tensors if isinstance(part, Symbol)]
    if any(not isinstance(part, Symbol | Tensor) for part in tensors) or dim not in (1, 1 - parts[0].rank):
        raise b.refuse(
            f"concatenates {', '.join(describe(p) for p in tensors if not isinstance(p, Tensor))} along {dim}; "
            "only channels (dim=1) of maps or features can be concatenated"
        )
    if any(part.order is not None for part in parts):
        raise b.refuse("concatenates flattened maps; concatenate the maps before flattening, or after the dense layer")
    if len(parts) < len(tensors):
        return _beside_zeros(b, tensors, parts)
    alike = all(is_bits(part) and part.factor == parts[0].factor for part in parts)
    if alike:
        return b.emit(ops.Concat(), *parts, factor=parts[0].factor)
    return b.emit(ops.Concat(), *(b.as_float(part) for part in parts))


def _beside_zeros(b: Builder, tensors: list[Any], parts: list[Symbol]) -> Symbol:
    if len(parts) != 1 or any(isinstance(part, Tensor) and uniform(part) != 0 for part in tensors):
        raise b.refuse("concatenates a constant; only zeros beside one tensor are supported")
    index = [np.full(p.shape[1], -1) if isinstance(p, Tensor) else np.arange(p.shape[2]) for p in tensors]
    return b.emit(ops.GatherChannels(np.concatenate(index).astype(np.int32)), b.as_float(parts[0]))
