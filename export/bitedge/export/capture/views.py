"""Rearrangements: view, permute, slice, split and their kin are only remembered, until somebody reads the result.

torch itself moves the places of the elements around. What comes out is then read as what the graph has: a choice of
channels, every n-th pixel, features of a flattened map; a channel shuffle or `flatten` followed by `view` need no
translation of their own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from bitedge.export.capture.builder import Builder, Index, Symbol, View, describe
from bitedge.export.capture.idioms import Step
from bitedge.export.capture.torch_export import BATCH
from bitedge.export.ir import ops
from bitedge.export.ir.graph import Kind

Rearranged = View | Step


def rearrange(b: Builder, target: Any, x: Symbol | View | Step, *args: Any, **options: Any) -> Any:
    """Apply one of torch's views to the places of a tensor's elements."""
    if isinstance(x, Step):
        moved = rearrange(b, target, x.source, *args, **options)
        return [Step(one, x.levels) for one in moved] if isinstance(moved, list) else Step(moved, x.levels)
    base = x.base if isinstance(x, View) else x
    places = torch.from_numpy(np.ascontiguousarray(x.index()))
    size = int(np.prod(base.shape))
    stacked = torch.stack([places + image * size for image in range(BATCH)])
    result = target(stacked, *args, **options)
    if isinstance(x, View) and isinstance(result, Tensor) and (places.ndim, result.ndim) == (3, 2):
        settled = settle_view(b, x)  # channels and pixels are chosen in the map, not among its features
        if isinstance(settled, Symbol):
            return rearrange(b, target, settled, *args, **options)
    if isinstance(result, Tensor):
        return View(base, _one_image(b, result, size))
    return [View(base, _one_image(b, part, size)) for part in result]


def _one_image(b: Builder, result: Tensor, size: int) -> Index:
    places: Index = result.numpy()
    if places.shape[0] != BATCH or any((places[i] != places[0] + i * size).any() for i in range(BATCH)):
        raise b.refuse("mixes the images of a batch; keep the first dimension as it is")
    first: Index = places[0]
    return first


def settle_view(b: Builder, x: View) -> Symbol | View:
    """Make a rearranged tensor of rank 2 or 4 into a value; others stay as they are."""
    if x.places.ndim == 1:
        return _features(b, x)
    return _map(b, x) if x.places.ndim == 3 else x


def _features(b: Builder, x: View) -> Symbol:
    """Features `[N, F]`: of a whole map they become `flatten`, which remembers torch's order of them."""
    base = x.base
    count = int(np.prod(base.shape))
    whole = x.places.size == count and bool((np.sort(x.places) == np.arange(count)).all())
    if base.shape[:2] == (1, 1):
        flat = Symbol(base.value, base.kind, base.shape, 2, None, base.factor)
    else:
        flat = b.emit(ops.Flatten(), base, rank=2, factor=base.factor)
        if whole:
            order = np.argsort(x.places)
            same = bool((order == np.arange(count)).all())
            return Symbol(flat.value, flat.kind, flat.shape, 2, None if same else order, flat.factor)
    return _gather(b, flat, x.places)


def _gather(b: Builder, x: Symbol, channels: Index) -> Symbol:
    if np.array_equal(channels, np.arange(x.shape[2])):
        return x
    return b.emit(ops.GatherChannels(channels.astype(np.int32)), x, factor=x.factor)


def _map(b: Builder, x: View) -> Symbol | View:
    """A map `[N, C, H, W]`: some channels of some rows and columns; in another arrangement it stays a view."""
    base = x.base
    _, width, depth = base.shape
    rows, columns, channels = x.places // (width * depth), x.places // depth % width, x.places % depth
    row, column, channel = rows[0, :, 0], columns[0, 0, :], channels[:, 0, 0]
    if not ((rows == row[:, None]).all() and (columns == column).all() and (channels == channel[:, None, None]).all()):
        return x
    source = Symbol(base.value, base.kind, base.shape, 4, None, base.factor)
    strides = (_stride(b, row, base.shape[0]), _stride(b, column, width))
    if strides != (1, 1):
        window = ops.Window((1, 1), strides)
        name = None if np.array_equal(channel, np.arange(depth)) else "pixels"
        source = b.emit(ops.MaxPool2d(window), source, inner=name, factor=source.factor)
    return _gather(b, source, channel)


def _stride(b: Builder, chosen: Index, size: int) -> int:
    step = int(chosen[1] - chosen[0]) if len(chosen) > 1 else size
    if step < 1 or not np.array_equal(chosen, np.arange(0, size, step)):
        raise b.refuse("crops a map, which is not supported; rows and columns may be taken whole, or every n-th from 0")
    return step


def whole_pixels(x: Symbol | View) -> bool:
    """Tell whether the last dimension of a tensor holds the channels of one pixel, all of them, in order."""
    base = x.base if isinstance(x, View) else x
    places, depth = x.index(), base.shape[2]
    if places.ndim == 0 or places.shape[-1] != depth:
        return False
    pixels = places.reshape(-1, depth)
    return bool((pixels == pixels[:, :1] + np.arange(depth)).all() and (pixels[:, 0] % depth == 0).all())


def as_value(b: Builder, x: Any) -> Symbol:
    """Give a map or features, or refuse a rearrangement that is neither."""
    if not isinstance(x, Symbol):
        raise b.refuse(
            f"reads elements that were moved between pixels and channels, as {describe(x)}, which is not supported; "
            "channels may be chosen and reordered, and every n-th pixel taken"
        )
    return x


def as_map(b: Builder, x: Any, what: str = "takes") -> Symbol:
    """Give a map, or refuse."""
    if as_value(b, x).rank != 4:
        raise b.refuse(f"{what} a map [N, C, H, W], the input is {describe(x)}")
    return as_value(b, x)


def as_features(b: Builder, x: Any) -> Symbol:
    """Give features, or refuse."""
    if as_value(b, x).rank != 2:
        raise b.refuse(f"takes features [N, F], the input is {describe(x)}; flatten it first")
    return as_value(b, x)


def is_bits(x: Symbol) -> bool:
    """Tell whether a value is bits."""
    return x.kind is Kind.BITS
