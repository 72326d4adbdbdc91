"""Operators of ONNX that move elements, and reductions. The first dimension is the batch, whatever the file says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bitedge.export.errors import ExportError

Attributes = Mapping[str, Any]


def _integers(array: Any) -> list[int]:
    return [int(number) for number in np.asarray(array).reshape(-1)]


def flatten(a: Attributes, x: Tensor) -> Tensor:
    """Flatten all but the batch."""
    if a.get("axis", 1) % (x.ndim + 1) != 1:
        raise ExportError(f"Flatten at axis {a['axis']} is not supported, only 1")
    return torch.flatten(x, 1)


def reshape(a: Attributes, x: Tensor, shape: Any) -> Tensor:
    """Reshape what is behind the batch; 0 keeps a dimension."""
    wanted = _integers(shape)
    if not a.get("allowzero"):
        wanted = [x.shape[i] if size == 0 and i < x.ndim else size for i, size in enumerate(wanted)]
    if wanted and wanted[0] == 1:
        wanted[0] = x.shape[0]
    if wanted.count(-1) == 1 and wanted[0] == -1:
        rest = int(np.prod(wanted[1:]))
        wanted[0] = x.shape[0] if rest * x.shape[0] == x.numel() else -1
    return x.reshape(wanted)


def transpose(a: Attributes, x: Tensor) -> Tensor:
    """Permute dimensions."""
    return x.permute(*a.get("perm", range(x.ndim - 1, -1, -1)))


def _axes(a: Attributes, axes: Any) -> list[int]:
    found = a.get("axes") if axes is None else _integers(axes)
    return [] if found is None else [int(axis) for axis in found]


def squeeze(a: Attributes, x: Tensor, axes: Any = None) -> Tensor:
    """Drop dimensions of size 1, never the batch."""
    wanted = [axis % x.ndim for axis in _axes(a, axes)] or [i for i in range(1, x.ndim) if x.shape[i] == 1]
    if 0 in wanted:
        raise ExportError("Squeeze of the batch is not supported")
    return torch.squeeze(x, tuple(wanted))


def unsqueeze(a: Attributes, x: Tensor, axes: Any = None) -> Tensor:
    """Insert dimensions of size 1."""
    wanted = _axes(a, axes)
    for axis in sorted(axis % (x.ndim + len(wanted)) for axis in wanted):
        x = torch.unsqueeze(x, axis)
    return x


def concat(a: Attributes, *tensors: Any) -> Tensor:
    """Concatenate."""
    return torch.cat(tensors, a["axis"])


def cut(a: Attributes, x: Tensor, *given: Any) -> Tensor:
    """Slice; the old form has its numbers as attributes."""
    rows = [a.get("starts"), a.get("ends"), a.get("axes"), None] if not given else [*given, *[None] * (4 - len(given))]
    starts, ends = (_integers(row) for row in rows[:2])
    axes = list(range(len(starts))) if rows[2] is None else _integers(rows[2])
    steps = [1] * len(starts) if rows[3] is None else _integers(rows[3])
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step < 1:
            raise ExportError(f"a slice with step {step} is not supported")
        window = [slice(None)] * x.ndim
        window[axis % x.ndim] = slice(start, min(end, 2**31), step)
        x = x[tuple(window)]
    return x


def split(a: Attributes, x: Tensor, sizes: Any = None) -> Any:
    """Split along an axis."""
    axis = a.get("axis", 0)
    wanted = a.get("split") if sizes is None else _integers(sizes)
    if wanted is not None:
        return torch.split(x, list(wanted), axis)
    parts = a["_outputs"]
    return torch.split(x, -(-x.shape[axis] // parts), axis)


def gather(a: Attributes, x: Any, index: Any) -> Tensor:
    """Choose along an axis by constant indices."""
    if not isinstance(x, Tensor) or isinstance(index, Tensor):
        raise ExportError("Gather by indices that depend on the image is not supported")
    axis = a.get("axis", 0)
    chosen = np.asarray(index)
    places = torch.from_numpy(np.where(chosen < 0, chosen + x.shape[axis], chosen).reshape(-1).astype(np.int64))
    found = torch.index_select(x, axis, places)
    return found.squeeze(axis) if chosen.ndim == 0 else found


def reduce(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Make the handler of a reduction."""

    def handler(a: Attributes, x: Tensor, axes: Any = None) -> Tensor:
        wanted = _axes(a, axes)
        if not wanted:
            raise ExportError("a reduction over all dimensions, the batch too, is not supported")
        return function(x, tuple(axis % x.ndim for axis in wanted), keepdim=bool(a.get("keepdims", 1)))

    return handler
