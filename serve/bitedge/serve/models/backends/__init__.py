"""What runs a model file: the bitedge core for `.gguf`, ONNX Runtime for `.onnx` when it is installed.

A backend is a row in `BACKENDS`: a suffix and a function that turns the file's bytes into a `ServedModel`. The bytes
are read once and never mapped, so that nobody who overwrites the file can change, or crash, a model that serves.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitedge.serve.api.errors import ModelFaultError
from bitedge.serve.inference.preprocessing import Preprocessing
from bitedge.serve.models.golden import check_golden

Runner = Callable[[NDArray[Any]], NDArray[np.float32]]

BINARY_OPERATORS = ("binary_conv2d", "image_conv2d")


@dataclass(eq=False)
class ServedModel:
    """One version of one model, loaded and self-tested."""

    name: str
    version: str
    backend: str
    platform: str
    context: Callable[[], Runner]  # one runner for each thread
    labels: tuple[str, ...]
    geometry: Preprocessing
    input_name: str
    input_shape: tuple[int, int, int]
    input_type: str  # a datatype of the Open Inference Protocol
    output_name: str
    output_count: int
    sha256: str
    size: int
    preprocessing: Mapping[str, Any] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)  # for the model card
    probabilities: bool = False  # the network ends in a softmax of its own
    loaded: float = field(default_factory=time.time)
    retired: bool = False
    pace: float = 0.0  # seconds for one image, measured while it serves; 0 before the first
    label_texts: tuple[str, ...] = field(init=False)  # the labels as JSON

    def __post_init__(self) -> None:
        self.label_texts = tuple(map(json.dumps, self.labels))

    def scores(self, outputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """Probabilities of every class, for `[images, classes]` outputs."""
        if self.probabilities:
            return outputs
        raised: NDArray[np.float32] = np.exp(outputs - np.maximum.reduce(outputs, axis=1, keepdims=True))
        raised /= np.add.reduce(raised, axis=1, keepdims=True)
        return raised


def load_model(path: Path, *, name: str, version: str, kernels: str | None = None) -> ServedModel:
    """Load a model file, check it against its golden vectors, and try it once; refuse it otherwise."""
    loader = BACKENDS.get(path.suffix)
    if loader is None:
        raise ModelFaultError(f"{path.name}: expected a file that ends in {' or '.join(BACKENDS)}")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelFaultError(f"{path}: cannot be read: {error.strerror}") from None
    model = loader(data, name, version, kernels)
    trial = np.random.default_rng(0).integers(0, 256, (2, *model.input_shape), dtype=np.uint8)
    run, images = model.context(), trial if model.input_type == "UINT8" else trial.astype(np.float32)
    outputs = run(images)
    begun = time.perf_counter()
    run(images)
    model.pace = (time.perf_counter() - begun) / len(images)
    if outputs.shape != (2, model.output_count) or not np.isfinite(outputs).all():
        raise ModelFaultError(f"{path.name}: a trial run gave no finite {model.output_count} outputs for each image")
    model.probabilities = bool((outputs >= 0).all() and np.allclose(outputs.sum(axis=1), 1, atol=1e-4))
    return model


def load_packed(data: bytes, name: str, version: str, kernels: str | None) -> ServedModel:
    """Load a `.gguf` into the bitedge core."""
    from bitedge.runtime import Model, RuntimeFault

    try:
        core = Model(data, kernels=kernels)
        core.check()
    except RuntimeFault as error:
        raise ModelFaultError(str(error)) from None
    height, width, channels = core.input_shape
    nodes = core.nodes
    geometry = (
        Preprocessing.of(core.preprocessing)
        if core.preprocessing
        else Preprocessing(height=height, width=width, channels=channels if channels in (1, 3) else 3)
    )
    _check_geometry(geometry, (height, width, channels))
    return ServedModel(
        name=name,
        version=version,
        backend="bitedge",
        platform="bitedge_gguf",
        context=lambda: core.context().run,
        labels=_checked_labels(core.labels, core.output_count),
        geometry=geometry,
        input_name=str(core.metadata.get("bitedge.input.name", "input")),
        input_shape=(height, width, channels),
        input_type="UINT8" if core.input_kind == "uint8" else "FP32",
        output_name=core.values[int(core.metadata["bitedge.graph.output"])].name,
        output_count=core.output_count,
        sha256=hashlib.sha256(data).hexdigest(),
        size=len(data),
        preprocessing=core.preprocessing,
        facts={
            "kernels": sorted({node.kernel for node in nodes if node.op in BINARY_OPERATORS and node.kernel}),
            "one_bit_weights": one_bit_share(nodes),
            "macs": sum(node.macs for node in nodes),
            **_training_facts(core.metadata.get("bitedge.training")),
        },
    )


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
        context=lambda: run,
        labels=_checked_labels(labels, outputs),
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
            **_training_facts(metadata.get("bitedge.training")),
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


BACKENDS: dict[str, Callable[[bytes, str, str, str | None], ServedModel]] = {
    ".gguf": load_packed,
    ".onnx": load_onnx,
}


def one_bit_share(nodes: Any) -> float | None:
    """The share of weights that are one bit; a convolution has `macs / output pixels` weights."""
    binary = total = 0.0
    for node in nodes:
        weights = node.macs / max(1, node.shape[0] * node.shape[1])
        total += weights
        binary += weights if node.op in BINARY_OPERATORS else 0
    return binary / total if total else None


def _checked_labels(labels: Any, outputs: int) -> tuple[str, ...]:
    if labels and len(labels) != outputs:
        raise ModelFaultError(f"the model has {len(labels)} labels for {outputs} outputs")
    return tuple(map(str, labels)) if labels else tuple(map(str, range(outputs)))


def _check_geometry(geometry: Preprocessing, shape: tuple[int, ...]) -> None:
    if (geometry.height, geometry.width, geometry.channels) != shape:
        raise ModelFaultError(f"the model takes {shape}, but its preprocessing gives {geometry}")


def _training_facts(text: Any) -> dict[str, Any]:
    """What the file says about its training, as far as it is there."""
    try:
        training = json.loads(text) if isinstance(text, str) else dict(text or {})
    except ValueError:
        return {}
    names = {"accuracy": "accuracy", "measured_on": "measured_on", "dataset": "dataset", "data": "dataset"}
    return {target: training[name] for name, target in names.items() if name in training}
