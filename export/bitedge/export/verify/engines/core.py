"""The C++ core as an engine of verification."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitedge.export.verify.engines.engines import Session
from bitedge.export.verify.metadata import Metadata
from bitedge.runtime import Model

Array = NDArray[Any]


def open_session(path: Path) -> Session:
    """Open a packed file."""
    return CoreSession(path)


class CoreSession:
    """The core: answers by the program that ships, inner values layer by layer."""

    def __init__(self, path: Path) -> None:
        self._model = Model(path)

    def run(self, images: Array) -> NDArray[np.float32]:
        """Answer NHWC images, `[N, outputs]`."""
        return self._model.run(images)

    def activations(self, images: Array) -> dict[str, Array]:
        """Give inner values by name, NHWC, bits as ±1."""
        return self._model.activations(images)

    def metadata(self) -> Metadata:
        """Give what the file says beside the network."""
        model = self._model
        return Metadata(model.name, model.labels, model.preprocessing, model.training)

    def check(self) -> None:
        """Hold the file to its golden vectors."""
        self._model.check()
