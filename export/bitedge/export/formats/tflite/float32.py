"""`model.float.tflite`: the same network for stock TensorFlow Lite, in float32 throughout.

Nobody should deploy it: signs are numbers and ±1 weights take four bytes. It is what `bitedge bench` measures
TensorFlow Lite's own XNNPACK kernels with. TensorFlow is loaded in a child process only:

python -m bitedge.export.formats.tflite.float32 FOLDER    graph.json, arrays.npz -> model.float.tflite
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bitedge.export.errors import ExportError
from bitedge.export.ir.graph import Graph
from bitedge.export.ir.serialize import load_graph, save_graph

FILE_NAME = "model.float.tflite"


def write_float(graph: Graph, path: Path) -> None:
    """Convert a lowered graph with TensorFlow's own converter, and write the file."""
    with tempfile.TemporaryDirectory(prefix="bitedge-tflite-") as name:
        folder = Path(name)
        save_graph(graph, folder)
        command = [sys.executable, "-m", "bitedge.export.formats.tflite.float32", str(folder)]
        child = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if child.returncode:
            lines = child.stderr.strip().splitlines() or ["no message"]
            raise ExportError(f"TensorFlow's converter ended with code {child.returncode}: {lines[-1].strip()}")
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            temporary.write_bytes((folder / FILE_NAME).read_bytes())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def convert(folder: Path) -> None:
    """Convert the graph in a folder; the child's job."""
    import tensorflow as tf

    from bitedge.export.formats.tflite.module import build

    module = build(load_graph(folder))
    with tempfile.TemporaryDirectory(dir=folder) as saved:
        tf.saved_model.save(module, saved, signatures={"serving_default": module.answer})
        flatbuffer = tf.lite.TFLiteConverter.from_saved_model(saved).convert()
    (folder / FILE_NAME).write_bytes(flatbuffer)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    convert(Path(sys.argv[1]))
