"""The engines that can run an artifact: one row each, used by verification."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bitedge.export.extras import needs
from bitedge.export.verify.metadata import Metadata

Array = NDArray[Any]


class Session(Protocol):
    """An artifact that is ready to answer."""

    def run(self, images: Array) -> NDArray[np.float32]:
        """Answer NHWC images, `[N, outputs]`."""
        ...

    def activations(self, images: Array) -> dict[str, Array]:
        """Give inner values by their name in the lowered graph, NHWC, bits as ±1; empty if the engine hides them."""
        ...

    def metadata(self) -> Metadata | None:
        """Give what the file says beside the network; None if the format holds nothing of it."""
        ...

    def check(self) -> None:
        """Hold the file to what it says of itself (golden vectors); raises if that fails."""
        ...


@dataclass(frozen=True)
class Engine:
    """An engine: its name, the artifact that it runs, and the module whose `open_session(path)` opens one."""

    name: str
    file_name: str
    module: str
    extra: str | None = None
    packages: tuple[str, ...] = ()
    repeatable: bool = False
    """`run` and `activations` give the same numbers, though the program that `run` takes fuses steps."""
    rounds_once: bool = True
    """It rounds sum · scale + bias once, as torch does, behind float layers too."""

    programs: tuple[str, ...] = ()
    """Programs that it calls."""

    def needs(self) -> str:
        """Say what is missing and how to get it; empty if nothing is."""
        programs = [program for program in self.programs if shutil.which(program) is None]
        return f"needs the program {programs[0]}: install it" if programs else needs(self.packages, self.extra)

    def open(self, path: Path) -> Session:
        """Open an artifact."""
        session: Session = importlib.import_module(self.module).open_session(path)
        return session


_ORT, _LCE = ("onnx", "onnxruntime"), ("larq_compute_engine", "tensorflow")

ENGINES = (
    Engine("core", "model.gguf", "bitedge.export.verify.engines.core", repeatable=True),
    Engine("onnx", "model.onnx", "bitedge.export.verify.engines.onnx", "onnx", _ORT),
    Engine("int8", "model.int8.onnx", "bitedge.export.verify.engines.onnx", "onnx", _ORT, rounds_once=False),
    Engine("tflite", "model.tflite", "bitedge.export.verify.engines.tflite", "tflite", _LCE),
    Engine("c", "c", "bitedge.export.verify.engines.c", programs=("cc",), repeatable=True),
)
