"""The child process that holds TensorFlow and Larq Compute Engine, so that no other process loads them.

python -m bitedge.export.formats.tflite.child convert FOLDER...    graph.json, arrays.npz -> model.tflite, layers.json
python -m bitedge.export.formats.tflite.child run                  answers lines of JSON: {"model", "images", "answers"}
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import numpy as np

from bitedge.export.errors import ExportError

REFUSED = 3  # exit code: the message on the last line is for the user


def convert(folder: Path) -> None:
    """Convert the graph in a folder."""
    import larq_compute_engine
    import tensorflow as tf

    from bitedge.export.formats.tflite.check import check
    from bitedge.export.formats.tflite.module import build
    from bitedge.export.ir.serialize import load_graph

    graph = load_graph(folder)
    module = build(graph)
    with tempfile.TemporaryDirectory(dir=folder) as saved:
        tf.saved_model.save(module, saved, signatures={"serving_default": module.answer})
        flatbuffer = larq_compute_engine.convert_saved_model(saved)
    rows = check(flatbuffer, graph)
    (folder / "layers.json").write_text(json.dumps([asdict(row) for row in rows]), encoding="utf-8")
    (folder / "model.tflite").write_bytes(flatbuffer)


def run() -> None:
    """Answer requests until the input ends; Larq Compute Engine takes one image at a time."""
    from larq_compute_engine.tflite.python.interpreter import Interpreter

    opened: tuple[str, Interpreter] | None = None
    for line in sys.stdin:
        request = json.loads(line)
        if opened is None or opened[0] != request["model"]:
            opened = request["model"], Interpreter(Path(request["model"]).read_bytes(), num_threads=os.cpu_count() or 1)
        images = np.load(request["images"], allow_pickle=False)
        answers = [np.asarray(opened[1].predict(image[None])).reshape(1, -1) for image in images]
        np.save(request["answers"], np.concatenate(answers).astype(np.float32))
        print("done", flush=True)


def main(arguments: list[str]) -> int:
    """Run one of the two jobs."""
    job, *folders = arguments
    try:
        for folder in folders if job == "convert" else ():
            convert(Path(folder))
        if job == "run":
            run()
    except ExportError as error:
        print(error, file=sys.stderr)
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
