"""A network in C as an engine of verification: compiled for this machine, and called."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitedge.export.errors import ExportError
from bitedge.export.verify.engines.engines import Session

Array = NDArray[Any]

_TRACE = "-DBITEDGE_TRACE(number,address)=bitedge_trace(number,address)"
_HOOK = """
static void (*hook)(unsigned, const void *);
void bitedge_hook(void (*function)(unsigned, const void *)) { hook = function; }
void bitedge_trace(unsigned number, const void *address) { if (hook) hook(number, address); }
"""
_Hook = ctypes.CFUNCTYPE(None, ctypes.c_uint, ctypes.c_void_p)


def open_session(path: Path) -> Session:
    """Compile a folder with the host's C compiler."""
    return CSession(path)


class CSession:
    """A compiled network. The library is loaded and its file removed at once."""

    def __init__(self, folder: Path, compiler: Sequence[str] = ("cc",), flags: Sequence[str] = ("-O2",)) -> None:
        header = (folder / "model.h").read_text(encoding="utf-8")
        sizes = {name: int(value) for name, value in re.findall(r"#define MODEL_(\w+) (\d+)\n", header)}
        self._shape = tuple(sizes[f"INPUT_{axis}"] for axis in ("HEIGHT", "WIDTH", "CHANNELS"))
        self._kind = np.uint8 if "typedef uint8_t model_input;" in header else np.float32
        self._outputs, self._words = sizes["OUTPUTS"], sizes["ARENA_WORDS"]
        self._values = _value_table((folder / "model.c").read_text(encoding="utf-8"))
        with tempfile.TemporaryDirectory() as temporary:
            self._library = ctypes.CDLL(str(_compile(folder, Path(temporary), [*compiler, *flags])))

    def run(self, images: Array) -> NDArray[np.float32]:
        """Answer NHWC images one after the other."""
        answers = np.empty((len(images), self._outputs), np.float32)
        arena = np.empty(self._words, np.uint32)
        for image, answer in zip(self._checked(images), answers, strict=True):
            self._library.model_run(*(ctypes.c_void_p(array.ctypes.data) for array in (image, answer, arena)))
        return answers

    def activations(self, images: Array) -> dict[str, Array]:
        """Give every value by its name, bits as ±1."""
        kept: dict[str, list[Array]] = {name: [] for name, _, _ in self._values.values()}

        def keep(number: int, address: int) -> None:
            name, kind, shape = self._values[number]
            kept[name].append(_copy(address, kind, shape))

        hook = _Hook(keep)
        self._library.bitedge_hook(hook)
        try:
            self.run(images)
        finally:
            self._library.bitedge_hook(None)
        return {name: np.stack(arrays) for name, arrays in kept.items()}

    def metadata(self) -> None:
        """Give nothing: the labels and the preprocessing are text for people there."""
        return

    def check(self) -> None:
        """Nothing to check: the golden answers are in a test of their own."""

    def _checked(self, images: Array) -> Array:
        if images.shape[1:] != self._shape or images.dtype != self._kind:
            raise ExportError(
                f"expected {np.dtype(self._kind)} images of shape {self._shape}, got {images.dtype} {images.shape[1:]}"
            )
        return np.ascontiguousarray(images)


def _compile(folder: Path, temporary: Path, command: Sequence[str]) -> Path:
    if shutil.which(command[0]) is None:
        raise ExportError(f"there is no C compiler {command[0]!r} to prove {folder} with; install one")
    library, hook = temporary / "libmodel.so", temporary / "hook.c"
    hook.write_text(_HOOK, encoding="utf-8")
    declared = "-include", str(temporary / "hook.h")
    (temporary / "hook.h").write_text("void bitedge_trace(unsigned number, const void *address);\n", encoding="utf-8")
    sources = [str(folder / "model.c"), str(folder / "bitedge_mcu.c"), str(hook)]
    options = ["-std=c99", "-shared", "-fPIC", f"-I{folder}", _TRACE, *declared]
    ended = subprocess.run(
        [*command, *options, "-o", str(library), *sources], capture_output=True, text=True, check=False, timeout=600
    )
    if ended.returncode != 0:
        raise ExportError(f"{folder} does not compile: {ended.stderr.strip()[-2000:]}")
    return library


def _value_table(source: str) -> dict[int, tuple[str, str, tuple[int, int, int]]]:
    """Read name, kind and shape of every value by its number from the comment in model.c."""
    lines = re.findall(r"^ \* (\d+) (\w+) (\d+)x(\d+)x(\d+) (.+)$", source, re.MULTILINE)
    return {
        int(number): (name, kind, (int(height), int(width), int(channels)))
        for number, kind, height, width, channels, name in lines
    }


def _copy(address: int, kind: str, shape: tuple[int, int, int]) -> Array:
    """Copy a value out of the arena."""
    height, width, channels = shape
    if kind == "float32":
        floats = (ctypes.c_float * (height * width * channels)).from_address(address)
        return np.array(floats, np.float32).reshape(shape)
    words = -(-channels // 32)
    packed = np.array((ctypes.c_uint32 * (height * width * words)).from_address(address), np.uint32)
    octets = packed.astype("<u4").reshape(height, width, words).view(np.uint8)
    negative = np.unpackbits(octets, axis=-1, bitorder="little")
    assert not negative[..., channels:].any(), "tail bits must be 0"
    return (1 - 2 * negative[..., :channels].astype(np.int8)).astype(np.int8)
