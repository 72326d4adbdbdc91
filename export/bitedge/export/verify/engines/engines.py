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

Array = NDArray[Any]


class Session(Protocol):
    """An artifact that is ready to answer."""

    def run(self, images: Array) -> NDArray[np.float32]:
        """Answer NHWC images, `[N, outputs]`."""
        ...

    def activations(self, images: Array) -> dict[str, Array]:
        """Give inner values by their name in the lowered graph, NHWC, bits as ±1; empty if the engine hides them."""
        ...


@dataclass(frozen=True)
class Engine:
    """An engine: its name, the artifact that it runs, and the module whose `open_session(path)` opens one."""

    name: str
    file_name: str
    module: str
    extra: str | None = None
    packages: tuple[str, ...] = ()
    half: bool = False
    """Its artifact holds the halved weights of an export with fp16."""
    rounds_once: bool = True
    """It rounds sum · scale + bias once, as torch does, behind float layers too."""

    programs: tuple[str, ...] = ()
    """Programs that it calls."""

    def missing(self) -> tuple[str, ...]:
        """Give the packages and programs that are not installed."""
        programs = tuple(program for program in self.programs if shutil.which(program) is None)
        return (*(package for package in self.packages if importlib.util.find_spec(package) is None), *programs)

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
    Engine("core", "model.gguf", "bitedge.export.verify.engines.core", half=True),
    Engine("onnx", "model.onnx", "bitedge.export.verify.engines.onnx", "onnx", _ORT, half=True),
    Engine("int8", "model.int8.onnx", "bitedge.export.verify.engines.onnx", "onnx", _ORT, half=True, rounds_once=False),
    Engine("tflite", "model.tflite", "bitedge.export.verify.engines.tflite", "tflite", _LCE, half=True),
    Engine("c", "c", "bitedge.export.verify.engines.c", half=True, programs=("cc",)),
)
