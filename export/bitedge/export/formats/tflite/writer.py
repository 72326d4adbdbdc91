"""The writer of `model.tflite`: a plain TensorFlow module, converted by Larq Compute Engine in a child process."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np

from bitedge.export.errors import ExportError
from bitedge.export.formats.bundle import Bundle
from bitedge.export.formats.tflite.worker import worker
from bitedge.export.ir import limits, ops
from bitedge.export.ir.graph import Graph
from bitedge.export.ir.serialize import save_graph


def write(bundle: Bundle, path: Path) -> None:
    """Write the TFLite file; what the converter says is shown only when it fails."""
    _refuse_inexact(bundle)
    converted(bundle.lowered, path, "convert", "model.tflite")


def converted(graph: Graph, path: Path, job: str, file_name: str) -> None:
    """Have a lowered graph converted and write the result."""
    with tempfile.TemporaryDirectory(prefix="bitedge-tflite-") as name:
        folder = Path(name)
        save_graph(graph, folder)
        worker().ask("the TFLite converter failed", job=job, folder=str(folder))
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            temporary.write_bytes((folder / file_name).read_bytes())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def _refuse_inexact(bundle: Bundle) -> None:
    for node in bundle.lowered.nodes:
        if isinstance(node.op, ops.ImageConv2d) and int(np.prod(node.op.weight.shape[1:])) > limits.IMAGE_TAPS:
            raise ExportError(
                f"layer {node.layer!r}: more than {limits.IMAGE_TAPS} taps on pixels are not exact in float32; "
                "export this network as gguf only"
            )
