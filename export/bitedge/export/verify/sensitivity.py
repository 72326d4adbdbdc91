"""Sensitivity: which answers depend on the last rounding, by a sign so close to 0 that any order of summation turns it.

An engine that shows its inner values is excused bit by bit (`agreement.py`). Otherwise torch itself decides: if its
answer to an image moves as soon as its float weights change by a millionth of themselves, that image says nothing
about the engine.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from bitedge.export.verify.torch_values import sign_sources
from bitedge.train.nn import BinaryLayer
from bitedge.train.nn.parameter import is_binary

if TYPE_CHECKING:
    from bitedge.export.capture.capture import Captured

DISTURBANCE = 1e-6  # of every float weight: more than engines differ by
TRIES = 16


def unsteady(captured: Captured, images: NDArray[Any], tolerance: float) -> NDArray[np.bool_]:
    """Tell for each image whether torch's answer moves by more than `tolerance` of its size when disturbed."""
    return movement(captured, images, TRIES) > tolerance


def movement(captured: Captured, images: NDArray[Any], tries: int, seed: int = 0) -> NDArray[np.float64]:
    """Give how far torch's answer to each image moves, of its size, when its float weights change a little."""
    captured = replace(captured, reference=None)  # the module beside itself, not beside another engine
    moved = np.zeros(len(images))
    if len(images) == 0:
        return moved
    generator = torch.Generator().manual_seed(seed)
    answers = _run(captured, images)
    size = np.maximum(np.abs(answers).max(axis=1), 1e-30)
    for _ in range(tries):
        other = _run(disturbed(captured, generator), images)
        moved = np.maximum(moved, np.abs(other - answers).max(axis=1) / size)
    return moved


def _run(captured: Captured, images: NDArray[Any]) -> NDArray[np.float32]:
    return np.concatenate([captured.run(images[i : i + 8]) for i in range(0, len(images), 8)])


def disturbed(captured: Captured, generator: torch.Generator) -> Captured:
    """Give the same module with slightly other float weights; ±1 weights stay as they are.

    A bias that is all 0, as that of an untrained norm, changes by a millionth of the largest weight of its layer.
    """
    module = copy.deepcopy(captured.module)
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, BinaryLayer):
                continue
            own = [parameter for parameter in layer.parameters(recurse=False) if not is_binary(parameter)]
            largest = max((float(parameter.abs().max()) for parameter in own if parameter.numel()), default=0.0)
            for parameter in own:
                noise = DISTURBANCE * torch.randn(parameter.shape, generator=generator)
                parameter.add_(noise * (parameter if parameter.any() else largest))
    return replace(captured, module=module)


def rounding_advice(captured: Captured, images: NDArray[Any]) -> str:
    """Say which layer gives most numbers that are 0 but for rounding to a sign, and what to do."""
    sources, producers = sign_sources(captured.graph), captured.graph.producers()
    values = captured.tensors(images, set(sources.values()))
    nearly_zero = {
        producers[name].layer: float((np.abs(array) <= DISTURBANCE * np.abs(array).max()).mean())
        for name, array in values.items()
        if name in sources.values() and name in producers
    }
    advice = "torch's own answers to seeded inputs hang on the last rounding, so no engine can agree with them"
    if nearly_zero and max(nearly_zero.values()) > 0:
        layer = max(nearly_zero, key=nearly_zero.__getitem__)
        advice += f"; layer {layer!r} gives numbers that are 0 but for rounding ({nearly_zero[layer]:.2%}) to a sign"
    return f"{advice}; train the network first, or give its norms a bias other than 0"
