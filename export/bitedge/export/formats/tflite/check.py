"""Reads a converted file back: which layers really became binary convolutions, and is it as small as it should be.

The converter leaves what it does not recognise as float convolutions, in silence; users have found 23.7 MB where
1.3 MB were expected. So every binary layer is looked for by its own packed weights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitedge.export.errors import ExportError
from bitedge.export.ir import ops
from bitedge.export.ir.graph import Graph
from bitedge.export.report.tables import text_table

MARGIN = 1.1
STRUCTURE = 2**16  # bytes for operators, tensors and names


@dataclass(frozen=True)
class LayerCheck:
    """What became of one layer with ±1 weights."""

    layer: str
    binary: bool
    note: str


def layer_checks(flatbuffer: bytes, graph: Graph) -> list[LayerCheck]:
    """Give one row for every layer that was trained binary."""
    found = Counter(filters(flatbuffer))
    rows = []
    for node in graph.nodes:
        if isinstance(node.op, ops.BinaryConv2d):
            wanted = Counter(packed_filters(node.op))
            binary = all(found[part] >= count for part, count in wanted.items())
            found.subtract(wanted)
            rows.append(LayerCheck(node.layer, binary, "LceBconv2d" if binary else "stayed a float convolution"))
        elif isinstance(node.op, ops.ImageConv2d) or (isinstance(node.op, ops.Conv2d) and node.op.binary):
            rows.append(LayerCheck(node.layer, False, "float convolution: its input is not binary"))
    return rows


def check(flatbuffer: bytes, graph: Graph) -> list[LayerCheck]:
    """Give the rows, or refuse a file in which a binary layer stayed float or which is too large."""
    rows = layer_checks(flatbuffer, graph)
    lost = [row.layer for row in rows if not row.binary and row.note.startswith("stayed")]
    if lost:
        raise ExportError(f"Larq Compute Engine left {', '.join(lost)} as float; expected a binary convolution")
    limit = MARGIN * expected_bytes(graph) + STRUCTURE
    if len(flatbuffer) > limit:
        raise ExportError(f"the TFLite file has {len(flatbuffer):,} bytes, at most {limit:,.0f} were expected")
    return rows


def table(rows: list[LayerCheck]) -> str:
    """Lay the rows out for a terminal."""
    return text_table(("layer", "in TFLite"), [[row.layer, row.note] for row in rows])


def expected_bytes(graph: Graph) -> int:
    """Count the bytes of all weights, bits packed, and of all numbers per channel."""
    total = 0
    for node in graph.nodes:
        op = node.op
        if isinstance(op, ops.BinaryConv2d):
            total += sum(len(part) for part in packed_filters(op))
        elif isinstance(op, ops.Conv2d | ops.ImageConv2d):
            total += 4 * op.weight.size
        elif isinstance(op, ops.LayerNorm):
            total += 8 * op.weight.size
        if isinstance(op, ops.BinaryConv2d | ops.Conv2d | ops.ImageConv2d):
            total += 8 * len(op.weight)
    return total


def packed_filters(op: ops.BinaryConv2d) -> Iterator[bytes]:
    """Pack weights as Larq Compute Engine does, `[O, KH, KW, ceil(I / 32)]` words of 32 bits, group by group."""
    for part in np.split(op.weight, op.window.groups):
        octets = np.packbits(part < 0, axis=-1, bitorder="little")
        padding = -octets.shape[-1] % 4
        yield np.pad(octets, ((0, 0), (0, 0), (0, 0), (0, padding))).tobytes()


def filters(flatbuffer: bytes) -> Iterator[bytes]:
    """Give the packed weights of every binary convolution of a file."""
    from tensorflow.lite.python import schema_py_generated as schema

    model = schema.ModelT.InitFromPackedBuf(flatbuffer, 0)
    graph = model.subgraphs[0]
    for operator in graph.operators:
        if model.operatorCodes[operator.opcodeIndex].customCode == b"LceBconv2d":
            data: NDArray[Any] = model.buffers[graph.tensors[operator.inputs[1]].buffer].data
            yield np.asarray(data, np.uint8).tobytes()
