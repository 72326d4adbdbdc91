"""Larq Compute Engine's own interpreter as an engine of verification, in a child process."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitedge.export.errors import ExportError
from bitedge.export.verify.engines.engines import Session

Array = NDArray[Any]


def open_session(path: Path) -> Session:
    """Open a TFLite file."""
    return TfliteSession(path)


class TfliteSession:
    """A child process that answers, batch after batch, until this object is dropped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder = tempfile.TemporaryDirectory(prefix="bitedge-lce-")
        self._log = (Path(self._folder.name) / "log").open("w+", encoding="utf-8")
        self._child = subprocess.Popen(
            [sys.executable, "-m", "bitedge.export.formats.tflite.child", "run"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        weakref.finalize(self, _stop, self._child, self._log, self._folder)

    def run(self, images: Array) -> NDArray[np.float32]:
        """Answer NHWC images, `[N, outputs]`."""
        entry, answer = (str(Path(self._folder.name) / name) for name in ("images.npy", "answers.npy"))
        np.save(entry, images)
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            self._child.stdin.write(json.dumps({"model": str(self._path), "images": entry, "answers": answer}) + "\n")
            self._child.stdin.flush()
        except BrokenPipeError:
            raise ExportError(self._failure()) from None
        if self._child.stdout.readline().strip() != "done":
            raise ExportError(self._failure())
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

    def _failure(self) -> str:
        self._child.wait()
        self._log.seek(0)
        log = self._log.read()
        sys.stderr.write(log)
        last = ([line.strip() for line in log.splitlines() if line.strip()] or ["no message"])[-1]
        return f"Larq Compute Engine could not run {self._path.name}: {last}"


def _stop(child: subprocess.Popen[str], log: Any, folder: tempfile.TemporaryDirectory[str]) -> None:
    child.communicate()  # closes its input, which ends it
    log.close()
    folder.cleanup()
