"""A stack of binary convolutions for single-layer peers, the same numbers for every engine.

Each layer is sign, 3x3 convolution padded with 0, scale and bias. Scales are powers of two and biases odd halves of
them, so that every engine computes exactly and no sign hangs on a rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
DEPTH = 4  # layers: enough that entering and leaving in floats does not count for much


@dataclass(frozen=True)
class Stack:
    """`DEPTH` layers of so many channels on a square map."""

    layer: str
    channels: int
    side: int

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one image."""
        return DEPTH * 9 * self.channels**2 * self.side**2

    def arrays(self, seed: int = 0) -> dict[str, Array]:
        """Weights ±1 `[DEPTH, O, I, 3, 3]`, scales and biases `[DEPTH, O]`."""
        rng = np.random.default_rng(seed)
        weight = rng.choice(np.array([-1, 1], np.int8), (DEPTH, self.channels, self.channels, 3, 3))
        scale = rng.choice(np.array([-2, -1, -0.5, 0.5, 1, 2], np.float32), (DEPTH, self.channels))
        half = rng.integers(-20, 20, scale.shape).astype(np.float32) + np.float32(0.5)
        return {"weight": weight, "scale": scale, "bias": scale * half}

    def images(self, count: int = 2, seed: int = 1) -> Array:
        """Inputs, NHWC, none of them near 0."""
        rng = np.random.default_rng(seed)
        shape = (count, self.side, self.side, self.channels)
        made: Array = rng.choice([-1.0, 1.0], shape) * rng.uniform(0.1, 1.0, shape)
        return made.astype(np.float32)


STACKS = tuple(
    Stack(f"birealnet18 {side}x{side}", channels, side) for channels, side in ((64, 56), (128, 28), (256, 14), (512, 7))
)


def write_arrays(stack: Stack, path: Path) -> None:
    """Write what a peer builds its layers from."""
    np.savez(path, **stack.arrays())


def write_packed(stack: Stack, path: Path) -> None:
    """Write the stack as a packed model: scale, bias and the sign that follows are thresholds, but for the last."""
    from bitedge.export.formats.bundle import Bundle
    from bitedge.export.formats.gguf import writer as gguf_writer
    from bitedge.export.ir import ops
    from bitedge.export.ir.graph import Graph, Kind, Node, Value
    from bitedge.export.verify.golden import reference_golden

    arrays = stack.arrays()
    window = ops.Window(kernel=(3, 3), pads=(1, 1, 1, 1))
    nodes = [Node(ops.Elementwise(ops.Affine(emit="bits")), ("input",), ("bits0",))]
    for i in range(DEPTH):
        weight, scale, bias = (arrays[key][i] for key in ("weight", "scale", "bias"))
        rows = weight.transpose(0, 2, 3, 1)
        if i == DEPTH - 1:
            last = ops.BinaryConv2d(rows, window, epilogue=ops.Affine(scale, bias))
            nodes.append(Node(last, (f"bits{i}",), ("answer",)))
            break
        # scale·acc + bias >= 0 is |scale|·(±acc) + bias >= 0: a negative scale turns the weights around.
        turned = (rows * np.sign(scale).reshape(-1, 1, 1, 1)).astype(np.int8)
        threshold = ops.Threshold(np.ceil(-bias / np.abs(scale)).astype(np.int32))
        nodes.append(Node(ops.BinaryConv2d(turned, window, epilogue=threshold), (f"bits{i}",), (f"bits{i + 1}",)))
    shape = (stack.side, stack.side, stack.channels)
    graph = Graph(stack.layer, Value("input", Kind.FLOAT, shape), tuple(nodes), "answer")
    gguf_writer.write(Bundle(graph, graph, reference_golden(graph, count=1)), path)
