"""Which images hang on the last rounding: a sign so close to 0 that any engine's own order of summation may turn it.

An engine that shows its inner values is excused bit by bit (`agreement.py`). One that hides them is excused by torch
itself: if torch's answer to an image moves as soon as its float weights change by a millionth of themselves, that
image says nothing about the engine.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from bitedge.train.nn import BinaryLayer
from bitedge.train.nn.parameter import is_binary

if TYPE_CHECKING:
    from bitedge.export.capture.capture import Captured

DISTURBANCE = 1e-6  # of every float weight: more than engines differ by
TRIES = 16


def unsteady(captured: Captured, images: NDArray[Any], tolerance: float, seed: int = 0) -> NDArray[np.bool_]:
    """Tell for each image whether torch's answer moves by more than `tolerance` of its size when disturbed."""
    if len(images) == 0:
        return np.zeros(0, np.bool_)
    generator = torch.Generator().manual_seed(seed)
    answers = _run(captured, images)
    size = np.maximum(np.abs(answers).max(axis=1), 1e-30)
    moved = np.zeros(len(images), np.bool_)
    for _ in range(TRIES):
        other = _run(disturbed(captured, generator), images)
        moved |= np.abs(other - answers).max(axis=1) > tolerance * size
    return moved


def _run(captured: Captured, images: NDArray[Any]) -> NDArray[np.float32]:
    return np.concatenate([captured.run(images[i : i + 8]) for i in range(0, len(images), 8)])


def disturbed(captured: Captured, generator: torch.Generator) -> Captured:
    """Give the same module with slightly other float weights; ±1 weights stay as they are."""
    module = copy.deepcopy(captured.module)
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, BinaryLayer):
                continue
            for parameter in layer.parameters(recurse=False):
                if not is_binary(parameter):
                    parameter.mul_(1 + DISTURBANCE * torch.randn(parameter.shape, generator=generator))
    return replace(captured, module=module)
