"""From a file of another framework to artifacts, with the engine that the file is for as reference."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bitedge.export.capture.capture import Captured, Reference, trace
from bitedge.export.errors import ExportError
from bitedge.export.importers.module import ImportedModule
from bitedge.export.ir.graph import Graph

if TYPE_CHECKING:
    from bitedge.export.report.report import Report

SUFFIXES = (".onnx", ".tflite")


@dataclass(frozen=True, eq=False)
class Imported:
    """A network that was read from a file: a torch module that computes it, and the engine that it comes from."""

    path: Path
    module: ImportedModule
    reference: Reference
    shape: tuple[int, int, int]
    """Channels, height and width of an image."""
    preprocessing: Mapping[str, Any] | None
    labels: tuple[str, ...]

    def captured(self) -> Captured:
        """Capture the network, with the engine as reference."""
        return trace(
            self.module,
            self.shape,
            preprocessing=self.preprocessing,
            name=self.path.stem,
            reference=self.reference,
        )

    @property
    def graph(self) -> Graph:
        """The captured graph, the same that a torch module of this network gives."""
        return self.captured().graph

    def export(
        self,
        out_dir: str | os.PathLike[str],
        *,
        formats: Sequence[str] | None = None,
        strict: bool = False,
        images: NDArray[Any] | None = None,
    ) -> Report:
        """Write every artifact that is asked for, each compared with the engine that the file comes from.

        `images` are NHWC as the artifacts take them: uint8 with preprocessing, otherwise float32. They are shown to
        both beside the seeded inputs.
        """
        from bitedge.export.api import export

        folder = Path(out_dir)
        return export(
            self.module,
            self.shape,
            folder,
            formats=formats,
            labels=self.labels or None,
            preprocessing=self.preprocessing,
            name=self.path.stem,
            strict=strict,
            evaluation=None if images is None else (images, np.zeros(len(images), np.int64)),
            source={"file": os.path.relpath(self.path.resolve(), folder.resolve()), "engine": self.reference.name},
            reference=self.reference,
        )


def import_model(
    path: str | os.PathLike[str],
    *,
    preprocessing: Mapping[str, Any] | None = None,
    labels: Sequence[str] | None = None,
) -> Imported:
    """Read a network from an ONNX or QONNX file, or from a TFLite file with operators of Larq Compute Engine.

    With `preprocessing` (docs/architecture.md) the artifacts take uint8 images, without they take what the file takes.
    """
    file = Path(path)
    if file.suffix not in SUFFIXES:
        raise ExportError(f"expected a file that ends in {' or '.join(SUFFIXES)}, got {file.name!r}")
    if not file.is_file():
        raise ExportError(f"{file} is not a file")
    read = _read_onnx if file.suffix == ".onnx" else _read_tflite
    module, reference, shape, kind, known = read(file)
    if kind is np.uint8:
        if preprocessing is not None:
            raise ExportError(f"{file} takes uint8 images and prepares them itself; leave preprocessing out")
        ones, zeros = [1.0] * shape[0], [0.0] * shape[0]
        size = {"size": list(shape[1:]), "resize": None, "interpolation": "bilinear"}
        preprocessing = {**size, "scale": ones, "offset": zeros}
    return Imported(file, module.eval(), reference, shape, preprocessing, tuple(labels or known))


_Read = tuple[ImportedModule, Reference, tuple[int, int, int], type[np.generic], tuple[str, ...]]


def _read_onnx(path: Path) -> _Read:
    from bitedge.export.importers.onnx.engine import OnnxReference
    from bitedge.export.importers.onnx.reader import read

    found = read(path)
    stored = {row.key: row.value for row in found.model.metadata_props}
    try:
        labels = tuple(str(label) for label in json.loads(stored.get("bitedge.labels", "[]")))
    except (ValueError, TypeError):
        labels = ()
    return found.module, OnnxReference(found), found.entry.shape, found.entry.kind, labels


def _read_tflite(path: Path) -> _Read:
    from bitedge.export.importers.tflite.engine import TfliteReference
    from bitedge.export.importers.tflite.reader import read

    found = read(path)
    return found.module, TfliteReference(found), found.shape, np.float32, ()
