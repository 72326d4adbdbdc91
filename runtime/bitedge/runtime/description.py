"""What a model says about itself: typed views of the JSON that the core writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Shape = tuple[int, int, int]


@dataclass(frozen=True)
class ValueInfo:
    """One value of the graph, per image."""

    name: str
    kind: str
    """`uint8`, `float32` or `bits`."""
    shape: Shape
    """Height, width, channels."""


@dataclass(frozen=True)
class NodeInfo:
    """One operator of the graph."""

    index: int
    op: str
    name: str
    """The name of its first output."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    shape: Shape
    """Of its outputs: height, width, channels."""
    kernel: str
    """What runs it on this machine."""
    macs: int
    """Multiply-accumulates of one image."""
    bytes: int
    """Of its tensors in the file."""
    attributes: Mapping[str, Any]
    """Everything else: kernel size, stride, pads, epilogue and the like."""


def values_of(description: Mapping[str, Any]) -> tuple[ValueInfo, ...]:
    """The values, the input first."""
    return tuple(ValueInfo(row["name"], row["kind"], _shape(row)) for row in description["values"])


def nodes_of(description: Mapping[str, Any]) -> list[NodeInfo]:
    """The nodes in the order in which they run."""
    shapes = {row["name"]: _shape(row) for row in description["values"]}
    known = ("index", "op", "name", "inputs", "outputs", "kernel", "macs", "bytes")
    return [
        NodeInfo(
            index=row["index"],
            op=row["op"],
            name=row["name"],
            inputs=tuple(row["inputs"]),
            outputs=tuple(row["outputs"]),
            shape=shapes[row["name"]],
            kernel=row["kernel"],
            macs=row["macs"],
            bytes=row["bytes"],
            attributes={key: value for key, value in row.items() if key not in known},
        )
        for row in description["nodes"]
    ]


def _shape(row: Mapping[str, Any]) -> Shape:
    height, width, channels = row["shape"]
    return height, width, channels
