"""Larq Compute Engine's interpreter, in the child process, as the reference of a network that came as TFLite."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitedge.export.formats.tflite.worker import worker
from bitedge.export.importers.tflite.reader import TfliteModel, arrange
from bitedge.export.verify.engines.tflite import TfliteSession


class TfliteReference:
    """Runs the file by the interpreter that it was made for."""

    name = "Larq Compute Engine"

    def __init__(self, read: TfliteModel) -> None:
        self._read = read
        self._session = TfliteSession(read.path)
        self._numbers = {path: int(name.split()[1]) for path, name in read.module.paths().items()}

    def _entry(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        sizes = self._read.file.tensors[self._read.file.input].shape[1:]
        return np.ascontiguousarray(images.transpose(0, 2, 3, 1), dtype=np.float32).reshape(len(images), *sizes)

    def run(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        """Answer images `[N, C, H, W]`."""
        return self._session.run(self._entry(images))

    def tensors(self, images: NDArray[np.float32], paths: Iterable[str]) -> dict[str, NDArray[Any]]:
        """Give what layers make: a copy of the file gets more outputs."""
        entry = self._read.file.input
        wanted = {path: self._numbers[path] for path in paths if self._numbers.get(path, entry) != entry}
        if not wanted:
            return {}
        numbers = sorted(set(wanted.values()))
        with tempfile.TemporaryDirectory(prefix="bitedge-lce-") as folder:
            entering, found = (str(Path(folder) / name) for name in ("images.npy", "tensors.npz"))
            np.save(entering, self._entry(images))
            worker().ask(
                f"Larq Compute Engine could not run {self._read.path.name}",
                job="probe",
                model=str(self._read.path.resolve()),
                images=entering,
                tensors=",".join(map(str, numbers)),
                answers=found,
            )
            with np.load(found, allow_pickle=False) as stored:
                arrays = {number: stored[str(number)] for number in numbers}
        result = {}
        for path, number in wanted.items():
            array = arrange(self._read.file.tensors[number], arrays[number], self._read.channels.get(number))
            if array is not None:
                result[path] = array
        return result
