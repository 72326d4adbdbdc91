"""The child process that holds TensorFlow and Larq Compute Engine, so that no other process loads them.

python -m bitedge.export.formats.tflite.child    answers lines of JSON, one request each:
{"job": "convert", "folder"}                     graph.json, arrays.npz -> model.tflite, layers.json
{"job": "convert_float", "folder"}               the same -> model.float.tflite
{"job": "run", "model", "images", "answers"}     images.npy -> answers.npy
{"job": "probe", ..., "tensors"}                 the same for inner tensors -> answers.npz
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import numpy as np

from bitedge.export.errors import ExportError


def convert(request: Mapping[str, str]) -> None:
    """Convert the graph in a folder by Larq Compute Engine."""
    import larq_compute_engine

    from bitedge.export.formats.tflite.check import check
    from bitedge.export.ir.serialize import load_graph

    folder = Path(request["folder"])
    flatbuffer = _saved(folder, larq_compute_engine.convert_saved_model)
    rows = check(flatbuffer, load_graph(folder))
    (folder / "layers.json").write_text(json.dumps([asdict(row) for row in rows]), encoding="utf-8")
    (folder / "model.tflite").write_bytes(flatbuffer)


def convert_float(request: Mapping[str, str]) -> None:
    """Convert the graph in a folder by TensorFlow's own converter, which knows no bits."""
    import tensorflow as tf

    folder = Path(request["folder"])
    flatbuffer = _saved(folder, lambda saved: tf.lite.TFLiteConverter.from_saved_model(saved).convert())
    (folder / "model.float.tflite").write_bytes(flatbuffer)


def _saved(folder: Path, converter: Callable[[str], bytes]) -> bytes:
    """Save the graph as a TensorFlow module and hand it to a converter."""
    import tensorflow as tf

    from bitedge.export.formats.tflite.module import build
    from bitedge.export.ir.serialize import load_graph

    module = build(load_graph(folder))
    with tempfile.TemporaryDirectory(dir=folder) as saved:
        tf.saved_model.save(module, saved, signatures={"serving_default": module.answer})
        return converter(saved)


def probe(request: Mapping[str, str]) -> None:
    """Give inner tensors of a file."""
    from bitedge.export.importers.tflite.probe import probe as run

    run(request)


class Runner:
    """Answers images; the file that was asked for last stays open."""

    def __init__(self) -> None:
        self._opened: tuple[str, int, Any] | None = None

    def __call__(self, request: Mapping[str, str]) -> None:
        """Answer one after the other: Larq Compute Engine takes one image at a time."""
        from larq_compute_engine.tflite.python.interpreter import Interpreter

        model = Path(request["model"])
        changed = model.stat().st_mtime_ns
        if self._opened is None or self._opened[:2] != (str(model), changed):
            self._opened = str(model), changed, Interpreter(model.read_bytes(), num_threads=os.cpu_count() or 1)
        images = np.load(request["images"], allow_pickle=False)
        answers = [np.asarray(self._opened[2].predict(image[None])).reshape(1, -1) for image in images]
        np.save(request["answers"], np.concatenate(answers).astype(np.float32))


def main() -> int:
    """Answer requests until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever the libraries print belongs to the log
    jobs: dict[str, Callable[[Mapping[str, str]], None]] = {
        "convert": convert,
        "convert_float": convert_float,
        "run": Runner(),
        "probe": probe,
    }
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, str] = {}
        try:
            jobs[request["job"]](request)
        except ExportError as error:
            answer["refused"] = str(error)
        except Exception as error:
            traceback.print_exc()
            answer["failed"] = traceback.format_exception_only(error)[-1].strip()
        print(json.dumps(answer), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
