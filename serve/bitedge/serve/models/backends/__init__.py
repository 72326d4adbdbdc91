"""Loaded models, and the backends that load them: the bitedge core for `.gguf`, ONNX Runtime for `.onnx`.

The bytes of a file are read once and never mapped, so that overwriting the file cannot change, or crash, a model that
serves.
"""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitedge.serve.api.errors import ModelFaultError, ServeError
from bitedge.serve.inference.preprocessing import Preprocessing

Runner = Callable[[NDArray[Any]], NDArray[np.float32]]

# The module and function that load a file, by its suffix.
BACKENDS = {
    ".gguf": ("bitedge.serve.models.backends.gguf", "load_gguf"),
    ".onnx": ("bitedge.serve.models.backends.onnx", "load_onnx"),
}


@dataclass(eq=False)
class ServedModel:
    """One version of one model, loaded and self-tested."""

    name: str
    version: str
    backend: str
    platform: str
    make_runner: Callable[[], Runner]  # a runner is used by one thread at a time
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
    seconds_per_image: float = 0.0  # measured while it serves; 0 before the first
    _idle: list[Runner] = field(default_factory=list)

    def run(self, images: NDArray[Any]) -> NDArray[np.float32]:
        """Run the model, in a runner that no other thread uses; runners are freed with the model."""
        try:
            runner = self._idle.pop()
        except IndexError:
            runner = self.make_runner()
        outputs = runner(images)
        self._idle.append(runner)  # not after a failure: the next call makes another one
        return outputs

    def observe(self, images: int, seconds: float) -> None:
        """Update the measured time for one image."""
        new = seconds / images
        self.seconds_per_image += (new - self.seconds_per_image) * (0.2 if self.seconds_per_image else 1.0)

    def scores(self, outputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the probabilities of every class, for `[images, classes]` outputs."""
        if self.probabilities:
            return outputs
        raised: NDArray[np.float32] = np.exp(outputs - np.maximum.reduce(outputs, axis=1, keepdims=True))
        raised /= np.add.reduce(raised, axis=1, keepdims=True)
        return raised


def load_model(path: Path, *, name: str, version: str, kernels: str | None = None) -> ServedModel:
    """Load a model file, check its golden vectors, and run it once; raise ModelFaultError if anything is wrong."""
    if path.suffix not in BACKENDS:
        raise ModelFaultError(f"{path.name}: expected a file that ends in {' or '.join(BACKENDS)}")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelFaultError(f"{path}: cannot be read: {error.strerror}") from None
    module, function = BACKENDS[path.suffix]
    try:
        model: ServedModel = getattr(importlib.import_module(module), function)(data, name, version, kernels)
        self_test(model, path.name)
    except ServeError:
        raise
    except Exception as error:  # a backend may raise anything for a model that it cannot run
        reason = " ".join(str(error).split())[:300]
        raise ModelFaultError(f"{path.name}: cannot be run: {type(error).__name__}: {reason}") from None
    return model


def self_test(model: ServedModel, file: str) -> None:
    """Run a model on two random images: the outputs must be finite and of the right shape."""
    trial = np.random.default_rng(0).integers(0, 256, (2, *model.input_shape), dtype=np.uint8)
    images = trial if model.input_type == "UINT8" else trial.astype(np.float32)
    outputs = model.run(images)
    begun = time.perf_counter()
    model.run(images)
    model.seconds_per_image = (time.perf_counter() - begun) / len(images)
    if outputs.shape != (2, model.output_count) or not np.isfinite(outputs).all():
        raise ModelFaultError(f"{file}: a trial run gave no finite {model.output_count} outputs for each image")
    model.probabilities = bool((outputs >= 0).all() and np.allclose(outputs.sum(axis=1), 1, atol=1e-4))


def checked_labels(labels: Any, outputs: int) -> tuple[str, ...]:
    """Return one label for each output; numbers, if the model has none."""
    if labels and len(labels) != outputs:
        raise ModelFaultError(f"the model has {len(labels)} labels for {outputs} outputs")
    return tuple(map(str, labels)) if labels else tuple(map(str, range(outputs)))


def check_geometry(geometry: Preprocessing, shape: tuple[int, ...]) -> None:
    """Refuse a model whose preprocessing gives another shape than it takes."""
    if (geometry.height, geometry.width, geometry.channels) != shape:
        raise ModelFaultError(f"the model takes {shape}, but its preprocessing gives {geometry}")


def training_facts(text: Any) -> dict[str, Any]:
    """Return what the file says about its training, as far as it is there."""
    try:
        training = json.loads(text) if isinstance(text, str) else dict(text or {})
    except ValueError:
        return {}
    names = {"accuracy": "accuracy", "measured_on": "measured_on", "dataset": "dataset", "data": "dataset"}
    return {target: training[name] for name, target in names.items() if name in training}
