"""onnxruntime as the reference of a network that was imported from ONNX."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from bitedge.export.errors import ExportError
from bitedge.export.importers.onnx.reader import OnnxModel


class OnnxReference:
    """Runs the file as it is written: onnxruntime's graph optimizations are off, because they round otherwise."""

    name = "onnxruntime"

    def __init__(self, read: OnnxModel) -> None:
        self._read = read
        self._paths = read.module.paths()
        self._session = _session(read.model)
        self._inside: tuple[frozenset[str], Any] | None = None

    def run(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        """Answer images `[N, C, H, W]`."""
        (answers,) = self._run(self._session, images)
        return answers.reshape(len(images), -1).astype(np.float32)

    def tensors(self, images: NDArray[np.float32], paths: Iterable[str]) -> dict[str, NDArray[Any]]:
        """Give what layers make: the file gets more outputs."""
        entry = self._read.entry.name
        wanted = {path: self._paths[path] for path in paths if self._paths.get(path, entry) != entry}
        names = frozenset(wanted.values())
        if not names:
            return {}
        if self._inside is None or self._inside[0] != names:
            copied = onnx.ModelProto()
            copied.CopyFrom(self._read.model)
            del copied.graph.output[:]
            copied.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(names))
            self._inside = names, _session(copied)
        found = dict(zip(sorted(names), self._run(self._inside[1], images), strict=True))
        return {path: found[name] for path, name in wanted.items() if found[name].dtype == np.float32}

    def _run(self, session: Any, images: NDArray[np.float32]) -> list[NDArray[Any]]:
        entry = self._read.entry
        size = entry.batch or len(images)
        parts = []
        for start in range(0, len(images), size):
            batch = images[start : start + size]
            filled = np.concatenate([batch, np.repeat(batch[:1], size - len(batch), axis=0)])
            parts.append([array[: len(batch)] for array in session.run(None, {entry.name: entry.feed(filled)})])
        return [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]


def _session(model: onnx.ModelProto) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ExportError(f"onnxruntime cannot run the file: {lines[0][:200]}") from error
