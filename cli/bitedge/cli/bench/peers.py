"""Convert a mobile network for its own engines, in a process of its own: `python -m bitedge.cli.bench.peers WHAT DIR`.

`quantize_onnx` quantizes float.onnx to int8.onnx by onnxruntime; `convert_tflite` converts the graph in the folder by
TensorFlow to float.tflite and int8.tflite. Both calibrate on calibration.npy (NHWC).
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np


def quantize_onnx(folder: Path) -> None:
    """Quantize weights per channel and activations per tensor."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    images = np.load(folder / "calibration.npy").transpose(0, 3, 1, 2)

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = iter(images)

        def get_next(self) -> dict[str, Any] | None:
            image = next(self.left, None)
            return None if image is None else {"image": image[None]}

    quant_pre_process(folder / "float.onnx", folder / "prepared.onnx", skip_symbolic_shape=True)
    quantize_static(
        folder / "prepared.onnx",
        folder / "int8.onnx",
        Reader(),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )


def convert_tflite(folder: Path) -> None:
    """Convert with TensorFlow's own converter, then once more with its full integer quantization."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    from bitedge.export.formats.tflite.module import build
    from bitedge.export.ir.serialize import load_graph

    images = np.load(folder / "calibration.npy")
    module = build(load_graph(folder))
    with tempfile.TemporaryDirectory(dir=folder) as saved:
        tf.saved_model.save(module, saved, signatures={"serving_default": module.answer})
        (folder / "float.tflite").write_bytes(tf.lite.TFLiteConverter.from_saved_model(saved).convert())
        converter = tf.lite.TFLiteConverter.from_saved_model(saved)
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: ([image[None]] for image in images)
        (folder / "int8.tflite").write_bytes(converter.convert())


if __name__ == "__main__":
    {"quantize_onnx": quantize_onnx, "convert_tflite": convert_tflite}[sys.argv[1]](Path(sys.argv[2]))
