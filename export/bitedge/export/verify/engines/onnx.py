"""ONNX Runtime as an engine of verification, for the float and the int8 file alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from bitedge.export.errors import ExportError
from bitedge.export.formats.onnx.builder import VALUES
from bitedge.export.verify.engines.engines import Session
from bitedge.export.verify.metadata import Metadata
from bitedge.runtime.golden import golden_images

Array = NDArray[Any]

PREFIX = "bitedge."
DOCUMENTS = ("labels", "preprocessing", "training")
GOLDEN_TOLERANCE = 1e-3


def open_session(path: Path) -> Session:
    """Open an ONNX file."""
    return OnnxSession(path)


class OnnxSession:
    """Answers with the file as it is; inner values come from a copy that gives them out."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._session = _session(str(path))
        self._input = self._session.get_inputs()[0].name
        self._inside: _Inside | None = None

    def run(self, images: Array) -> NDArray[np.float32]:
        """Answer NHWC images, `[N, outputs]`."""
        answers: NDArray[np.float32] = self._session.run(None, {self._input: images})[0]
        return answers

    def activations(self, images: Array) -> dict[str, Array]:
        """Give inner values by their name in the lowered graph, NHWC, bits as ±1."""
        if self._inside is None:
            self._inside = _Inside(self._path)
        return self._inside.values(self._input, images)

    def metadata(self) -> Metadata:
        """Give what the file says beside the network."""
        stored = self._session.get_modelmeta().custom_metadata_map
        document = {key: json.loads(stored[f"{PREFIX}{key}"]) for key in DOCUMENTS if f"{PREFIX}{key}" in stored}
        return Metadata(
            stored.get(f"{PREFIX}name", ""),
            tuple(document.get("labels", ())),
            document.get("preprocessing"),
            document.get("training"),
        )

    def check(self) -> None:
        """Hold the file to the golden answers that it says."""
        golden = json.loads(self._session.get_modelmeta().custom_metadata_map[f"{PREFIX}golden"])
        expected = np.array(golden["output"], np.float32)
        entry = self._session.get_inputs()[0]
        kind = "uint8" if "uint8" in entry.type else "float32"
        images = golden_images(kind, tuple(entry.shape[1:]), golden["seed"], len(expected))
        off = np.abs(self.run(images) - expected).max(axis=1) / np.maximum(1, np.abs(expected).max(axis=1))
        if not (off <= GOLDEN_TOLERANCE).all():
            raise ExportError(f"a golden answer is off by {off.max():.1e}, allowed are {GOLDEN_TOLERANCE:g}")


class _Inside:
    """A copy of the file in which every value of the graph is an output."""

    def __init__(self, path: Path) -> None:
        model = onnx.load(str(path))
        known = json.loads({row.key: row.value for row in model.metadata_props}[VALUES])
        self._places: dict[str, tuple[str, str, str]] = known["values"]
        given = {value.name for value in model.graph.input}
        self._tensors = sorted({tensor for tensor, _, _ in self._places.values()} - given)
        model.graph.output.extend(onnx.ValueInfoProto(name=tensor) for tensor in self._tensors)
        self._session = _session(model.SerializeToString())

    def values(self, entry: str, images: Array) -> dict[str, Array]:
        """Give every value, NHWC."""
        found = dict(zip(self._tensors, self._session.run(self._tensors, {entry: images}), strict=True))
        found[entry] = images
        values = {}
        for name, (tensor, layout, kind) in self._places.items():
            array = found[tensor] if layout == "NHWC" else found[tensor].transpose(0, 2, 3, 1)
            values[name] = _signs(array) if kind == "bits" else array
        return values


def _signs(array: Array) -> NDArray[np.int8]:
    """Give ±1: the float file has them as they are, the int8 file as 0 and 2."""
    return (array.astype(np.int8) - (array.dtype == np.uint8)).astype(np.int8)


def _session(model: str | bytes) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors; its warnings are about optimizations
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # torch works in between
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
