"""The engines that are measured side by side: one row each, with the artifact it runs and how it is opened.

A row's `open` is called in the engine's own process (see `worker.py`), so that no engine's threads, allocator or
log disturb another's. It returns a function from uint8 NHWC images to logits, at the batch size of its argument.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Images = np.ndarray[Any, Any]
Run = Callable[[Images], Images]


@dataclass(frozen=True)
class Engine:
    """One way to run a network: its name, the file it takes, the package and extra it needs."""

    name: str
    artifact: str
    package: str
    extra: str | None
    open: Callable[[Path, int, str | None], Run]

    @property
    def install(self) -> str:
        """The line that brings the engine."""
        return f"pip install 'bitedge[{self.extra}]'" if self.extra else "pip install bitedge"


class Core:
    """The C++ core, which also knows how long its nodes take."""

    def __init__(self, path: Path, threads: int, kernels: str | None) -> None:
        from bitedge.runtime import Model

        self.model = Model(path, threads=threads, kernels=kernels)

    def __call__(self, images: Images) -> Images:
        """Answer images."""
        return self.model.run(images)

    def nodes(self, images: Images) -> list[float]:
        """Answer images, and give the time of each node in seconds."""
        return self.model.profile(images, runs=1)


def open_onnxruntime(path: Path, threads: int, _kernels: str | None) -> Run:
    """ONNX Runtime's CPU provider, with nothing of bitedge."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda images: np.asarray(session.run(None, {name: images})[0])


def open_larq(path: Path, threads: int, _kernels: str | None) -> Run:
    """Larq Compute Engine's own interpreter; it takes one image at a time."""
    from larq_compute_engine.tflite.python.interpreter import Interpreter

    interpreter = Interpreter(path.read_bytes(), num_threads=threads)
    dtype = interpreter.input_types[0]
    return lambda images: np.concatenate([interpreter.predict(image[None].astype(dtype)) for image in images])


def open_tflite(path: Path, threads: int, _kernels: str | None) -> Run:
    """TensorFlow Lite with the XNNPACK delegate on a float model, one image at a time."""
    import tensorflow as tf

    interpreter = tf.lite.Interpreter(model_path=str(path), num_threads=threads)
    interpreter.allocate_tensors()
    entry, answer = interpreter.get_input_details()[0], interpreter.get_output_details()[0]

    def one(image: Images) -> Images:
        interpreter.set_tensor(entry["index"], image[None].astype(entry["dtype"]))
        interpreter.invoke()
        return np.asarray(interpreter.get_tensor(answer["index"]))

    return lambda images: np.concatenate([one(image) for image in images])


def open_torch(path: Path, threads: int, _kernels: str | None) -> Run:
    """The trained module itself, in float32, from its run folder."""
    import torch

    from bitedge.train import load_run

    torch.set_num_threads(threads)
    run = load_run(path)
    module = run.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    scale, offset = (torch.tensor(run.preprocessing[key]).view(1, -1, 1, 1) for key in ("scale", "offset"))

    def forward(images: Images) -> Images:
        with torch.inference_mode():
            pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float()
            return np.asarray(module(pixels * scale + offset))

    return forward


def open_openvino(path: Path, threads: int, _kernels: str | None) -> Run:
    """OpenVINO's BinaryConvolution, which no converter emits: the layers of `layers.py`, one after the other."""
    import openvino
    from openvino import opset1

    def constant(value: Images) -> Any:
        return opset1.constant(value.reshape(1, -1, 1, 1).astype(np.float32))

    zero, one = constant(np.zeros(1)), constant(np.ones(1))
    with np.load(path, allow_pickle=False) as stored:
        weights, scales, biases = stored["weight"], stored["scale"], stored["bias"]
    channels = weights.shape[1]
    kept: list[Images] = []  # the constants are views of this memory
    entry = value = opset1.parameter([1, channels, -1, -1], dtype=np.float32)
    for weight, scale, bias in zip(weights, scales, biases, strict=True):
        bits = opset1.fake_quantize(value, zero, zero, zero, one, 2)  # OpenVINO's form of a sign
        kept.append(np.packbits(weight.reshape(-1) > 0, bitorder="little"))
        packed = openvino.Tensor(kept[-1], openvino.Shape(weight.shape), openvino.Type.u1)
        product = opset1.binary_convolution(
            bits, openvino.op.Constant(packed), [1, 1], [1, 1], [1, 1], [1, 1], "xnor-popcount", 0.0, "explicit"
        )
        value = opset1.add(opset1.multiply(product, constant(scale)), constant(bias))
    model = openvino.Model([value], [entry])
    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    held: list[Any] = [None, None, None, kept]

    def run(images: Images) -> Images:
        if held[0] is not images:  # its layout is NCHW: what is not its work is not timed
            entering = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
            model.reshape(entering.shape)
            held[:3] = images, entering, openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
        answer = held[2].infer({0: held[1]}, share_inputs=True, share_outputs=True)[0]
        return np.asarray(answer).transpose(0, 2, 3, 1)

    return run


ENGINES = (
    Engine("bitedge", "model.gguf", "bitedge", None, Core),
    Engine("onnxruntime int8", "model.int8.onnx", "onnxruntime", "onnx", open_onnxruntime),
    Engine("onnxruntime", "model.onnx", "onnxruntime", "onnx", open_onnxruntime),
    Engine("larq", "model.tflite", "larq_compute_engine", "tflite", open_larq),
    Engine("tflite xnnpack", "model.float.tflite", "tensorflow", "tflite", open_tflite),
    Engine("torch", "run", "torch", "train", open_torch),
)

# Peers that run single layers and no whole network.
LAYER_ENGINES = (Engine("openvino", "layers.npz", "openvino", "bench", open_openvino),)
