"""What depends on parameters alone: computed once, and recognised as ±1 weights where it is that."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bitedge.export.errors import ExportError

FloatArray = NDArray[np.float32]
_FEW = 0.1  # the part of zeros up to which weights were meant to be ±s


def numbers(parameter: Tensor) -> FloatArray:
    """Give a torch tensor as a numpy array of finite float32."""
    array: FloatArray = parameter.detach().cpu().float().numpy().copy()
    if not np.isfinite(array).all():
        raise ExportError("a parameter holds NaN or infinity: the network is not usable, train it again")
    return array


def signs_and_scales(weight: FloatArray) -> tuple[NDArray[np.int8], FloatArray] | None:
    """Split weights `[O, ...]` that are ±s in each output channel into ±1 and s; None if they are anything else.

    A channel of zeros is +1 times 0. A few zeros among ±s are what `torch.sign` makes of a weight that is exactly 0:
    `ZeroWeightError`; many are a sparse or ternary layer, which stays float.
    """
    sizes = np.abs(weight).reshape(len(weight), -1)
    scales = sizes.max(axis=1)
    ternary = (sizes == scales[:, None]) | (sizes == 0)
    if not ternary.all():
        return None
    zeros = int(((sizes == 0) & (scales[:, None] > 0)).sum())
    if zeros > sizes.size * _FEW:
        return None
    if zeros:
        raise ZeroWeightError(zeros, sizes.size)
    return np.where(weight >= 0, np.int8(1), np.int8(-1)), scales.astype(np.float32)


class ZeroWeightError(Exception):
    """Some of otherwise ±s weights are exactly 0."""

    def __init__(self, zeros: int, total: int) -> None:
        super().__init__(f"{zeros} of {total} weights are exactly 0, the others ±s")


def uniform(tensor: Tensor) -> Any:
    """Give the one number that a constant tensor holds everywhere, None if it holds several."""
    if tensor.numel() == 0:
        return None
    first = tensor.flatten()[0]
    return float(first) if bool((tensor == first).all()) else None
