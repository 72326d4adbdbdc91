"""Run an `.onnx` file in ONNX Runtime, if that is installed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitedge.serve.api.errors import ModelFaultError
from bitedge.serve.inference.preprocessing import Preprocessing
from bitedge.serve.models.backends import Runner, ServedModel, checked_labels, training_facts
from bitedge.serve.models.golden import check_golden


def load_onnx(data: bytes, name: str, version: str, kernels: str | None) -> ServedModel:  # noqa: ARG001
    """Load a `.onnx` into ONNX Runtime; labels and preprocessing come from its metadata."""
    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise ModelFaultError("an .onnx model needs ONNX Runtime; run: pip install 'bitedge[onnx]'") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # the batcher's threads are the parallelism
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        metadata = session.get_modelmeta().custom_metadata_map
        preprocessing = json.loads(metadata["bitedge.preprocessing"])
        labels = json.loads(metadata.get("bitedge.labels", "[]"))
    except KeyError as error:
        raise ModelFaultError(f"the .onnx file has no metadata {error}; export it with bitedge export") from None
    except Exception as error:  # ONNX Runtime has no common base class for what a damaged file raises
        raise ModelFaultError(f"ONNX Runtime refuses the file: {' '.join(str(error).split())[:300]}") from None
    geometry = Preprocessing.of(preprocessing)
    source, target = session.get_inputs()[0], session.get_outputs()[0]
    outputs = target.shape[-1]
    if not isinstance(outputs, int) or len(source.shape) != 4:
        raise ModelFaultError(f"the .onnx model maps {source.shape} to {target.shape}; expected images to [N, classes]")
    run = onnx_runner(session, source, target.name, preprocessing)
    shape = (geometry.height, geometry.width, geometry.channels)
    if "bitedge.golden" in metadata:
        check_golden(metadata["bitedge.golden"], run, shape, outputs)
    return ServedModel(
        name=name,
        version=version,
        backend="onnxruntime",
        platform="onnxruntime_onnx",
        make_runner=lambda: run,
        labels=checked_labels(labels, outputs),
        geometry=geometry,
        input_name=source.name,
        input_shape=shape,
        input_type="UINT8",
        output_name=target.name,
        output_count=outputs,
        sha256=hashlib.sha256(data).hexdigest(),
        size=len(data),
        preprocessing=preprocessing,
        facts={
            "kernels": [f"onnxruntime {onnxruntime.__version__}"],
            **training_facts(metadata.get("bitedge.training")),
        },
    )


def onnx_runner(session: Any, source: Any, output: str, preprocessing: Mapping[str, Any]) -> Runner:
    """Feed uint8 NHWC images to a session, in the layout and type that it declares."""
    channels_first = source.shape[1] in (1, 3) and source.shape[3] not in (1, 3)
    wants_bytes = source.type == "tensor(uint8)"
    scale = np.asarray(preprocessing.get("scale", 1.0), np.float32)
    offset = np.asarray(preprocessing.get("offset", 0.0), np.float32)

    def run(images: NDArray[Any]) -> NDArray[np.float32]:
        tensor = images if wants_bytes else images.astype(np.float32) * scale + offset
        tensor = tensor.transpose(0, 3, 1, 2) if channels_first else tensor
        (result,) = session.run([output], {source.name: np.ascontiguousarray(tensor)})
        return np.asarray(result, np.float32)

    return run
