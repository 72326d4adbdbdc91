"""Run a TFLite file with inner tensors as outputs; only the child process with TensorFlow imports this."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np


def probe(request: Mapping[str, str]) -> None:
    """Write the tensors of these numbers for every image: {"model", "images", "tensors", "answers"}."""
    import flatbuffers
    from larq_compute_engine.tflite.python.interpreter import Interpreter
    from tensorflow.lite.python import schema_py_generated as schema

    model = schema.ModelT.InitFromPackedBuf(Path(request["model"]).read_bytes(), 0)
    numbers = [int(number) for number in request["tensors"].split(",")]
    model.subgraphs[0].outputs = numbers
    model.signatureDefs = None
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    interpreter = Interpreter(bytes(builder.Output()))
    images = np.load(request["images"], allow_pickle=False)
    rows = []
    for image in images:
        found = interpreter.predict(image[None])
        rows.append([found] if len(numbers) == 1 else found)
    arrays = {str(number): np.concatenate([row[i] for row in rows]) for i, number in enumerate(numbers)}
    np.savez(request["answers"], **arrays)
