"""What follows a product, channel by channel: a threshold, the affine form, or a list of steps (docs/format.md)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]
Activation = Literal["none", "relu", "prelu"]
Emit = Literal["float", "bits", "float+bits"]
FunctionKind = Literal["sigmoid", "hardsigmoid", "silu", "hardswish", "gelu", "gelu_tanh", "tanh"]
StepKind = Literal["fma", "add", "multiply", "relu", "prelu", "clamp"] | FunctionKind


@dataclass(frozen=True, eq=False)
class Threshold:
    """Bits out of an integer accumulator: +1 iff acc >= threshold."""

    threshold: NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Affine:
    """fma(y, scale, bias), + residual (a second input of the node), activation, sign: in that order."""

    scale: FloatArray | None = None
    bias: FloatArray | None = None
    activation: Activation = "none"
    slope: FloatArray | None = None
    emit: Emit = "float"


@dataclass(frozen=True, eq=False)
class Step:
    """One step: `fma` has scale and bias, `prelu` a slope, `clamp` its limits, `add` and `multiply` the next input."""

    kind: StepKind
    scale: FloatArray | None = None
    bias: FloatArray | None = None
    slope: FloatArray | None = None
    min: float = 0.0
    max: float = 0.0

    @property
    def reads(self) -> bool:
        """Tell whether the step takes the node's next input."""
        return self.kind in ("add", "multiply")


@dataclass(frozen=True, eq=False)
class Steps:
    """Steps in the order in which they are done, then the sign as in `Affine`."""

    steps: tuple[Step, ...] = ()
    emit: Emit = "float"


FloatEpilogue = Affine | Steps
Epilogue = Threshold | Affine | Steps


def steps_of(epilogue: FloatEpilogue, inputs: int) -> tuple[Step, ...]:
    """Give an epilogue as steps; `inputs` is the number of the node's inputs."""
    if isinstance(epilogue, Steps):
        return epilogue.steps
    steps = []
    if epilogue.scale is not None and epilogue.bias is not None:
        steps.append(Step("fma", scale=epilogue.scale, bias=epilogue.bias))
    if inputs > 1:
        steps.append(Step("add"))
    if epilogue.activation == "relu":
        steps.append(Step("relu"))
    elif epilogue.activation == "prelu":
        steps.append(Step("prelu", slope=epilogue.slope))
    return tuple(steps)


_ORDER = {"fma": 0, "add": 1, "relu": 2, "prelu": 2}


def from_steps(steps: tuple[Step, ...], emit: Emit) -> FloatEpilogue:
    """Give the affine form if it can express the steps: such a file is one of version 1."""
    ranks = [_ORDER.get(step.kind, -1) for step in steps]
    if -1 in ranks or any(later <= earlier for earlier, later in itertools.pairwise(ranks)):
        return Steps(steps, emit)
    found = {step.kind: step for step in steps}
    fma = found.get("fma", Step("fma"))
    activation: Activation = "relu" if "relu" in found else "prelu" if "prelu" in found else "none"
    return Affine(fma.scale, fma.bias, activation, found["prelu"].slope if "prelu" in found else None, emit)
