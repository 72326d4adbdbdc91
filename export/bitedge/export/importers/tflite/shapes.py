"""TFLite operators that move elements, and reductions; their axes are those of the file, channels last."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bitedge.export.errors import ExportError

Options = Mapping[str, Any]
_AXES = (0, 2, 3, 1)


def channels_last(x: Tensor) -> Tensor:
    """Give a tensor as it stands in the file."""
    return x.permute(0, 2, 3, 1) if x.ndim == 4 else x


def channels_first(x: Tensor) -> Tensor:
    """Give a tensor of the file as it stands in torch."""
    return x.permute(0, 3, 1, 2) if x.ndim == 4 else x


def _axis(number: int, rank: int) -> int:
    axis = int(number) % rank
    return _AXES[axis] if rank == 4 else axis


def _integers(array: Any) -> list[int]:
    return [int(number) for number in np.ravel(array)]


def reshape(o: Options, x: Tensor, *_: Any) -> Tensor:
    """Reshape, squeeze and expand: the shape of the result is in the file."""
    wanted = [int(size) for size in o["_shape"]]
    if not wanted or wanted[0] != 1:
        raise ExportError(f"a reshape to {wanted} mixes the batch with the rest, which is not supported")
    return channels_first(channels_last(x).reshape(x.shape[0], *wanted[1:]))


def transpose(_o: Options, x: Tensor, order: Any) -> Tensor:
    """Permute dimensions."""
    return channels_first(channels_last(x).permute(*_integers(order)))


def concat(o: Options, *tensors: Tensor) -> Tensor:
    """Concatenate along an axis."""
    return torch.cat(tensors, _axis(o.get("Axis", 0), tensors[0].ndim))


def pad(_o: Options, x: Tensor, pads: Any, value: Any = None) -> Tensor:
    """Pad with a constant."""
    rows = np.asarray(pads).reshape(-1, 2)
    if len(rows) != x.ndim or int(rows.min(initial=0)) < 0:
        raise ExportError(f"the padding {rows.tolist()} does not fit {x.ndim} dimensions")
    sides = [(0, 0)] * x.ndim
    for number, (before, after) in enumerate(rows):
        sides[_axis(number, x.ndim)] = (int(before), int(after))
    flat = [size for pair in reversed(sides) for size in pair]
    while len(flat) > 2 and flat[-2:] == [0, 0]:
        flat = flat[:-2]
    return F.pad(x, flat, value=0.0 if value is None else float(np.ravel(value)[0]))


def split(o: Options, axis: Any, x: Tensor) -> Any:
    """Split into equal parts."""
    where, parts = _axis(_integers(axis)[0], x.ndim), int(o.get("NumSplits", 1))
    if parts < 1 or x.shape[where] % parts:
        raise ExportError(f"{x.shape[where]} channels do not split into {parts}")
    return torch.split(x, x.shape[where] // parts, where)


def strided_slice(o: Options, x: Tensor, begin: Any, end: Any, strides: Any) -> Tensor:
    """Slice with steps; masks free an end."""
    if any(o.get(mask) for mask in ("EllipsisMask", "NewAxisMask", "ShrinkAxisMask")):
        raise ExportError("a slice that adds or drops dimensions is not supported")
    for number, (first, last, step) in enumerate(zip(*map(_integers, (begin, end, strides)), strict=True)):
        if step < 1:
            raise ExportError(f"a slice with step {step} is not supported")
        start = None if o.get("BeginMask", 0) >> number & 1 else first
        stop = None if o.get("EndMask", 0) >> number & 1 else last
        x = _cut(x, number, slice(start, stop, step))
    return x


def cut(_o: Options, x: Tensor, begin: Any, size: Any) -> Tensor:
    """Slice by begin and size."""
    for number, (first, count) in enumerate(zip(_integers(begin), _integers(size), strict=True)):
        x = _cut(x, number, slice(first, None if count == -1 else first + count))
    return x


def _cut(x: Tensor, number: int, part: slice) -> Tensor:
    if number == 0:
        return x  # the batch
    window = [slice(None)] * x.ndim
    window[_axis(number, x.ndim)] = part
    return x[tuple(window)]


def reduce(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Make the handler of a reduction."""

    def handler(o: Options, x: Tensor, axes: Any) -> Tensor:
        wanted = tuple(_axis(axis, x.ndim) for axis in _integers(axes))
        if not wanted or 0 in wanted:
            raise ExportError("a reduction over the batch is not supported")
        kept = bool(o.get("KeepDims"))
        if x.ndim == 4 and not kept and 1 not in wanted and len(wanted) == 1:
            raise ExportError("a reduction over height or width alone is not supported")
        return function(x, wanted, keepdim=kept)

    return handler
