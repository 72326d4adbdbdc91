"""Every operator of the graph, captured or lowered, as a frozen dataclass.

A captured graph has torch's layers (batch_norm, sign, add); a lowered graph has only the operators of docs/format.md,
where everything elementwise after a convolution has become its epilogue. Convolutions are in both: without an
epilogue they give their bare accumulator. Weights are `[O, KH, KW, I / groups]`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bitedge.export.ir.epilogue import Activation as Activation
from bitedge.export.ir.epilogue import Affine as Affine
from bitedge.export.ir.epilogue import Emit as Emit
from bitedge.export.ir.epilogue import Epilogue as Epilogue
from bitedge.export.ir.epilogue import FloatArray as FloatArray
from bitedge.export.ir.epilogue import FloatEpilogue as FloatEpilogue
from bitedge.export.ir.epilogue import FunctionKind as FunctionKind
from bitedge.export.ir.epilogue import Step as Step
from bitedge.export.ir.epilogue import Steps as Steps
from bitedge.export.ir.epilogue import Threshold as Threshold


@dataclass(frozen=True)
class Window:
    """Where a convolution or a pooling looks: pads are (top, left, bottom, right)."""

    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """Give the height and width of the result; below 1 when the window does not fit."""
        top, left, bottom, right = self.pads
        spans = [d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel, strict=True)]
        rows = (height + top + bottom - spans[0]) // self.stride[0] + 1
        columns = (width + left + right - spans[1]) // self.stride[1] + 1
        return rows, columns


@dataclass(frozen=True, eq=False)
class Op:
    """What a node does. `name` is the operator's name in reports and in the packed file."""

    name: ClassVar[str] = ""


@dataclass(frozen=True, eq=False)
class Normalize(Op):
    """uint8 pixels to floats: fma(u, scale, offset), per channel."""

    name: ClassVar[str] = "normalize"
    scale: FloatArray
    offset: FloatArray


@dataclass(frozen=True, eq=False)
class Pad(Op):
    """Constant padding as a node of its own; lowering folds it into what follows."""

    name: ClassVar[str] = "pad"
    pads: tuple[int, int, int, int]
    value: float

    @property
    def keeps_bits(self) -> bool:
        """Tell whether padded bits stay bits: ±1, or 0 for a tap that contributes nothing."""
        return self.value in (1.0, 0.0, -1.0)


@dataclass(frozen=True, eq=False)
class Sign(Op):
    """Bits: +1 where x >= 0, else -1.

    `at_zero` is what the framework gives for 0 (`torch.sign`: 0, a strict comparison: -1). Engines give +1, so an
    exact 0 at a sign that is marked otherwise is an error of the export.
    """

    name: ClassVar[str] = "sign"
    at_zero: int = 1


@dataclass(frozen=True, eq=False)
class Conv2d(Op):
    """Float convolution, padded with 0. `binary` marks ±1 weights that were trained as such."""

    name: ClassVar[str] = "conv2d"
    weight: NDArray[np.floating[Any]]
    window: Window = field(default_factory=Window)
    binary: bool = False
    epilogue: FloatEpilogue | None = None


@dataclass(frozen=True, eq=False)
class BinaryConv2d(Op):
    """Bits against ±1 weights: an integer accumulator. Padded taps hold `pad_value`; 0 contributes nothing."""

    name: ClassVar[str] = "binary_conv2d"
    weight: NDArray[np.int8]
    window: Window = field(default_factory=Window)
    pad_value: int = 0
    epilogue: Epilogue | None = None


@dataclass(frozen=True, eq=False)
class ImageConv2d(Op):
    """uint8 pixels against ±1 weights: acc = Σ w·(2u - 255), an integer; a padded pixel contributes 0."""

    name: ClassVar[str] = "image_conv2d"
    weight: NDArray[np.int8]
    window: Window = field(default_factory=Window)
    epilogue: Epilogue | None = None


@dataclass(frozen=True, eq=False)
class BatchNorm(Op):
    """Batch normalization with its running statistics, over channels."""

    name: ClassVar[str] = "batch_norm"
    mean: FloatArray
    variance: FloatArray
    weight: FloatArray
    bias: FloatArray
    eps: float


@dataclass(frozen=True, eq=False)
class LayerNorm(Op):
    """Layer normalization over channels, at each pixel."""

    name: ClassVar[str] = "layer_norm"
    weight: FloatArray
    bias: FloatArray
    eps: float


@dataclass(frozen=True, eq=False)
class GroupNorm(Op):
    """Group normalization: mean and variance over the whole map and the channels of a group."""

    name: ClassVar[str] = "group_norm"
    groups: int
    weight: FloatArray
    bias: FloatArray
    eps: float


@dataclass(frozen=True, eq=False)
class Scale(Op):
    """x · scale, in float32; one number, or one per channel."""

    name: ClassVar[str] = "scale"
    scale: FloatArray


@dataclass(frozen=True, eq=False)
class Shift(Op):
    """x + bias, in float32; one number, or one per channel."""

    name: ClassVar[str] = "shift"
    bias: FloatArray


@dataclass(frozen=True, eq=False)
class Clamp(Op):
    """x, but not below `min` and not above `max`; either may be infinite."""

    name: ClassVar[str] = "clamp"
    min: float
    max: float


@dataclass(frozen=True, eq=False)
class Function(Op):
    """An activation function without parameters."""

    name: ClassVar[str] = "function"
    kind: FunctionKind


@dataclass(frozen=True, eq=False)
class Relu(Op):
    """max(x, 0)."""

    name: ClassVar[str] = "relu"


@dataclass(frozen=True, eq=False)
class Prelu(Op):
    """x where x >= 0, else slope·x; one slope, or one per channel."""

    name: ClassVar[str] = "prelu"
    slope: FloatArray


@dataclass(frozen=True, eq=False)
class Add(Op):
    """The sum of two values of one shape."""

    name: ClassVar[str] = "add"


@dataclass(frozen=True, eq=False)
class Multiply(Op):
    """The product of two values of one shape, or of a map and one number per channel and image, `[1, 1, C]`."""

    name: ClassVar[str] = "multiply"


@dataclass(frozen=True, eq=False)
class Concat(Op):
    """The channels of all inputs, one input after the other."""

    name: ClassVar[str] = "concat"


@dataclass(frozen=True, eq=False)
class GatherChannels(Op):
    """Output channel o is input channel `index[o]`; -1 is the constant 0."""

    name: ClassVar[str] = "gather_channels"
    index: NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Flatten(Op):
    """The whole map as channels of one pixel, in the order height, width, channel."""

    name: ClassVar[str] = "flatten"


@dataclass(frozen=True, eq=False)
class MaxPool2d(Op):
    """Maximum over a window; `min_channels` (only on bits) take the minimum. Padded positions never win."""

    name: ClassVar[str] = "max_pool2d"
    window: Window
    min_channels: NDArray[np.bool_] | None = None


@dataclass(frozen=True, eq=False)
class AvgPool2d(Op):
    """Mean over a window; padded positions are zeros that count, or do not.

    The last `overhang` (bottom, right) rows and columns of the padding never count: torch's `ceil_mode`.
    """

    name: ClassVar[str] = "avg_pool2d"
    window: Window
    count_include_pad: bool = True
    overhang: tuple[int, int] = (0, 0)


@dataclass(frozen=True, eq=False)
class AdaptiveAvgPool2d(Op):
    """Mean over size[0] x size[1] parts of the map: row i is that of the rows floor(i·H/size) to ceil((i+1)·H/size)."""

    name: ClassVar[str] = "adaptive_avg_pool2d"
    size: tuple[int, int]


@dataclass(frozen=True, eq=False)
class Softmax(Op):
    """Softmax over channels."""

    name: ClassVar[str] = "softmax"


@dataclass(frozen=True, eq=False)
class Elementwise(Op):
    """Nothing but an epilogue; bits enter as ±1."""

    name: ClassVar[str] = "elementwise"
    epilogue: FloatEpilogue


Convolution = Conv2d | BinaryConv2d | ImageConv2d
LOWERED: tuple[type[Op], ...] = (
    Normalize,
    ImageConv2d,
    BinaryConv2d,
    Conv2d,
    Elementwise,
    MaxPool2d,
    AvgPool2d,
    LayerNorm,
    Softmax,
    Concat,
    GatherChannels,
    GroupNorm,
    AdaptiveAvgPool2d,
)


def epilogue_of(op: Op) -> Epilogue | None:
    """Give the epilogue of a convolution or an elementwise node, None for anything else."""
    return op.epilogue if isinstance(op, Conv2d | BinaryConv2d | ImageConv2d | Elementwise) else None


def accumulator_bound(op: BinaryConv2d | ImageConv2d) -> int:
    """Give the largest magnitude that the integer accumulator can reach."""
    taps = int(np.prod(op.weight.shape[1:]))
    return 255 * taps if isinstance(op, ImageConv2d) else taps
