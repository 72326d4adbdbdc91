"""Larq Compute Engine's own interpreter as an engine of verification, in a child process."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitedge.export.formats.tflite.worker import worker
from bitedge.export.verify.engines.engines import Session

Array = NDArray[Any]


def open_session(path: Path) -> Session:
    """Open a TFLite file."""
    return TfliteSession(path)


class TfliteSession:
    """A TFLite file that the child process with TensorFlow runs."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def run(self, images: Array) -> NDArray[np.float32]:
        """Answer NHWC images, `[N, outputs]`."""
        with tempfile.TemporaryDirectory(prefix="bitedge-lce-") as folder:
            entry, answer = (str(Path(folder) / name) for name in ("images.npy", "answers.npy"))
            np.save(entry, images)
            what = f"Larq Compute Engine could not run {self._path.name}"
            worker().ask(what, job="run", model=str(self._path.resolve()), images=entry, answers=answer)
            answers: NDArray[np.float32] = np.load(answer, allow_pickle=False)
        return answers

    def activations(self, _images: Array) -> dict[str, Array]:
        """Give nothing: the interpreter hides its inner values."""
        return {}

    def metadata(self) -> None:
        """Give nothing: the file holds the network alone."""
        return

    def check(self) -> None:
        """Nothing to check: the file says nothing of itself."""
