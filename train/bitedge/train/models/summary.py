"""A table of a network: weights, work and size of each layer, by precision."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bitedge.train.errors import TrainError
from bitedge.train.nn import BinaryConv2d, BinaryLayer, BinaryLinear

_HEADINGS = (
    "layer",
    "kind",
    "input",
    "output shape",
    "1-bit weights",
    "32-bit weights",
    "1-bit MACs",
    "32-bit MACs",
    "kB",
)


@dataclass(frozen=True)
class LayerSummary:
    """One layer. A multiplication counts as 1-bit only when both the weight and the input are ±1."""

    name: str
    kind: str
    input_bits: int | None
    """1 when the layer multiplies ±1, 32 when it multiplies the input as it is, None when it has no weights."""
    output_shape: tuple[int, ...]
    binary_weights: int
    float_weights: int
    binary_macs: int
    float_macs: int

    @property
    def packed_bytes(self) -> float:
        """Size with one bit per binary weight and four bytes per float."""
        return self.binary_weights / 8 + 4 * self.float_weights

    def cells(self) -> list[str]:
        """Return the row as text; a zero is a dash."""
        counts = (self.binary_weights, self.float_weights, self.binary_macs, self.float_macs)
        return [
            self.name,
            self.kind,
            "-" if self.input_bits is None else f"{self.input_bits}-bit",
            "x".join(map(str, self.output_shape)),
            *(f"{count:,}" if count else "-" for count in counts),
            f"{self.packed_bytes / 1000:,.2f}" if self.packed_bytes else "-",
        ]


@dataclass(frozen=True)
class Summary:
    """The table of a network, and its totals.

    The float weights include the running statistics of a BatchNorm, and leave out a scale that is frozen at 1.
    """

    network: str
    input_shape: tuple[int, ...]
    layers: tuple[LayerSummary, ...]

    def totals(self) -> dict[str, float]:
        """Return weights and MACs of each kind, bytes packed and in float32, and how many times smaller packed is."""
        binary = sum(layer.binary_weights for layer in self.layers)
        real = sum(layer.float_weights for layer in self.layers)
        packed = sum(layer.packed_bytes for layer in self.layers)
        return {
            "binary_weights": binary,
            "float_weights": real,
            "binary_macs": sum(layer.binary_macs for layer in self.layers),
            "float_macs": sum(layer.float_macs for layer in self.layers),
            "packed_bytes": packed,
            "float32_bytes": 4 * (binary + real),
            "compression": 4 * (binary + real) / packed if packed else 1.0,
        }

    def as_dict(self) -> dict[str, Any]:
        """Return the table as plain data for JSON."""
        rows = [{**asdict(layer), "packed_bytes": layer.packed_bytes} for layer in self.layers]
        return {"network": self.network, "input_shape": list(self.input_shape), "layers": rows, "totals": self.totals()}

    def _rows(self) -> tuple[list[list[str]], list[str]]:
        totals = self.totals()
        counts = [f"{totals[key]:,}" for key in ("binary_weights", "float_weights", "binary_macs", "float_macs")]
        total = ["total", "", "", "", *counts, f"{totals['packed_bytes'] / 1000:,.2f}"]
        return [layer.cells() for layer in self.layers], total

    def _closing(self) -> str:
        totals = self.totals()
        macs = totals["binary_macs"] + totals["float_macs"]
        share = totals["binary_macs"] / macs if macs else 0.0
        return (
            f"{totals['packed_bytes'] / 1e6:.2f} MB packed, {totals['float32_bytes'] / 1e6:.2f} MB in float32 "
            f"({totals['compression']:.1f} times smaller); {share:.1%} of {macs:,} MACs are 1-bit"
        )

    def text(self) -> str:
        """Return the table for a terminal."""
        rows, total = self._rows()
        widths = [max(len(row[column]) for row in (*rows, total, _HEADINGS)) for column in range(len(_HEADINGS))]

        def line(cells: Sequence[str]) -> str:
            aligned = (
                cell.ljust(width) if column < 4 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
            )
            return "  ".join(aligned).rstrip()

        rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
        title = f"{self.network}, input {'x'.join(map(str, self.input_shape))}"
        return "\n".join([title, line(_HEADINGS), rule, *map(line, rows), rule, line(total), self._closing()])

    def markdown(self) -> str:
        """Return the table in Markdown."""
        rows, total = self._rows()
        marks = ["---"] * 4 + ["---:"] * (len(_HEADINGS) - 4)
        table = [f"| {' | '.join(cells)} |" for cells in (_HEADINGS, marks, *rows, total)]
        return "\n".join([*table, "", self._closing()])

    def __str__(self) -> str:
        return self.text()


def summarize(module: nn.Module, input_shape: Sequence[int]) -> Summary:
    """Run one black image of `input_shape` (channels, height, width) through the module and describe its layers."""
    if not input_shape or min(input_shape) < 1:
        raise TrainError(f"input_shape must be (channels, height, width) without the batch, got {tuple(input_shape)}")
    leaves = {name: layer for name, layer in module.named_modules() if not any(True for _ in layer.children())}
    names = {layer: name or type(layer).__name__ for name, layer in leaves.items()}
    seen: dict[nn.Module, LayerSummary] = {}

    def record(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        seen[layer] = _describe(names[layer], layer, inputs[0], output, seen.get(layer))

    hooks = [layer.register_forward_hook(record) for layer in names]
    training = module.training
    first = next(module.parameters(), torch.empty(0))
    try:
        module.eval()
        with torch.no_grad():
            module(torch.zeros(1, *input_shape, device=first.device))
    finally:
        module.train(training)
        for hook in hooks:
            hook.remove()
    layers = tuple(row for layer, row in seen.items() if not isinstance(layer, nn.Identity))
    return Summary(type(module).__name__, tuple(input_shape), layers)


def _describe(name: str, layer: nn.Module, x: Tensor, output: Tensor, earlier: LayerSummary | None) -> LayerSummary:
    """Return a layer's row; weights count once, and the work of a layer that is used again adds up."""
    binary = layer.weight.numel() if isinstance(layer, BinaryLayer) else 0
    macs = _macs(layer, output)
    input_bits = None if macs is None else 1 if isinstance(layer, BinaryLayer) and _takes_bits(layer, x) else 32
    work = macs or 0
    return LayerSummary(
        name=name,
        kind=type(layer).__name__,
        input_bits=input_bits,
        output_shape=tuple(output.shape[1:]),
        binary_weights=binary,
        float_weights=_stored_floats(layer) - binary,
        binary_macs=(work if input_bits == 1 else 0) + (earlier.binary_macs if earlier else 0),
        float_macs=(work if input_bits == 32 else 0) + (earlier.float_macs if earlier else 0),
    )


def _takes_bits(layer: BinaryLayer, x: Tensor) -> bool:
    """Whether a layer binarizes its input, or gets it as ±1 from an `RSign` before it."""
    return layer.input_quantizer is not None or bool((x.abs() == 1).all())


def _stored_floats(layer: nn.Module) -> int:
    """Return the values of a layer's parameters and float buffers, without a BatchNorm scale that is frozen at 1."""
    count = sum(tensor.numel() for tensor in (*layer.parameters(), *layer.buffers()) if tensor.is_floating_point())
    if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d) and layer.affine and not layer.weight.requires_grad:
        count -= layer.num_features
    return count


def _macs(layer: nn.Module, output: Tensor) -> int | None:
    """Return the multiplications of a layer with weights for one image: outputs times taps (padding included)."""
    if isinstance(layer, BinaryConv2d | BinaryLinear | nn.Conv2d | nn.Linear):
        return output[0].numel() * math.prod(layer.weight.shape[1:])
    return None
