"""`model.float.tflite`: the same network for stock TensorFlow Lite, in float32 throughout.

Nobody should deploy it: signs are numbers and ±1 weights take four bytes. It is what `bitedge bench` measures
TensorFlow Lite's own XNNPACK kernels with.
"""

from __future__ import annotations

from pathlib import Path

from bitedge.export.formats.tflite.writer import converted
from bitedge.export.ir.graph import Graph

FILE_NAME = "model.float.tflite"


def write_float(graph: Graph, path: Path) -> None:
    """Convert a lowered graph with TensorFlow's own converter, and write the file."""
    converted(graph, path, "convert_float", FILE_NAME)
