"""The writer of `model.tflite`: a plain TensorFlow module, converted by Larq Compute Engine in a child process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from bitedge.export.errors import ExportError
from bitedge.export.formats.bundle import Bundle
from bitedge.export.formats.tflite.child import REFUSED
from bitedge.export.ir import limits, ops
from bitedge.export.ir.serialize import save_graph


def write(bundle: Bundle, path: Path) -> None:
    """Write the TFLite file; what the converter says is shown only when it fails."""
    _refuse_inexact(bundle)
    with tempfile.TemporaryDirectory(prefix="bitedge-tflite-") as name:
        folder = Path(name)
        save_graph(bundle.lowered, folder)
        command = [sys.executable, "-m", "bitedge.export.formats.tflite.child", "convert", str(folder)]
        child = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if child.returncode:
            raise ExportError(_failure(child))
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            temporary.write_bytes((folder / "model.tflite").read_bytes())
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


def _failure(child: subprocess.CompletedProcess[str]) -> str:
    """Show the child's log, unless it refused the network in its own words, and give one line for the table."""
    lines = [line for line in child.stderr.splitlines() if line.strip()] or ["no message"]
    if child.returncode == REFUSED:
        return lines[-1]
    sys.stderr.write(child.stderr)
    return f"the TFLite converter ended with code {child.returncode}: {lines[-1].strip()}"
