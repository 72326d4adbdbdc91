"""One caller's place to run a model."""

from __future__ import annotations

import ctypes
import threading
import weakref
from typing import TYPE_CHECKING

import numpy as np

from bitedge.runtime.arrays import Array, address, checked_images, copy_value
from bitedge.runtime.errors import RuntimeFault
from bitedge.runtime.library import ContextOptions, ValueStruct, call, check, library

if TYPE_CHECKING:
    from bitedge.runtime.model import Model

MOST_THREADS = 256


class Context:
    """Memory and threads to run a model in; made by `Model.context`, one for each thread that runs.

    Contexts of one model run side by side. A context that is called from two threads runs them one after the other.
    """

    def __init__(self, model: Model, *, threads: int = 1, keep_values: bool = False) -> None:
        if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= MOST_THREADS:
            raise RuntimeFault(f"threads: expected a whole number from 1 to {MOST_THREADS}, got {threads!r}")
        self._model = model
        self._input = (np.dtype(model.input_kind), model.input_shape)
        self._core_run = library().bitedge_context_run
        self._lock = threading.Lock()
        handle = ctypes.c_void_p()
        options = ContextOptions(threads=threads, keep_values=int(keep_values))
        call("bitedge_context_create", model.handle, ctypes.byref(options), ctypes.byref(handle))
        self._handle = handle
        weakref.finalize(self, library().bitedge_context_free, handle)
        self.threads = threads

    def run(self, images: Array) -> Array:
        """Answer a batch of images: [N, height, width, channels] to float32 [N, outputs]."""
        batch = checked_images(images, *self._input)
        with self._lock:
            return self._run(batch)

    def activations(self, images: Array) -> dict[str, Array]:
        """Every value of the graph by name, NHWC; bits as int8 ±1. Only of a context made with `keep_values`."""
        batch = checked_images(images, *self._input)
        if len(batch) == 0:
            raise RuntimeFault("expected at least one image, got none")
        with self._lock:
            self._run(batch)
            values = {}
            for index, info in enumerate(self._model.values):
                value = ValueStruct()
                call("bitedge_context_value", self._handle, index, ctypes.byref(value))
                values[info.name] = copy_value(value)
            return values

    def profile(self, images: Array, runs: int) -> list[float]:
        """Mean wall time of every node over so many runs, in seconds."""
        batch = checked_images(images, *self._input)
        if len(batch) == 0 or runs < 1:
            raise RuntimeFault(f"expected at least one image and one run, got {len(batch)} and {runs}")
        nodes = len(self._model.nodes)
        sums = (ctypes.c_uint64 * nodes)()
        with self._lock:
            self._run(batch)  # plans and warms up
            call("bitedge_context_set_profiling", self._handle, 1)
            try:
                for _ in range(runs):
                    self._run(batch)
                call("bitedge_context_profile", self._handle, sums, nodes)
            finally:
                call("bitedge_context_set_profiling", self._handle, 0)
        return [nanoseconds / runs / 1e9 for nanoseconds in sums]

    def _run(self, batch: Array) -> Array:
        """Run the core, with as little Python as can be: a network has swept all of it out of the cache."""
        answer = np.empty((len(batch), self._model.output_count), np.float32)
        if len(batch) > 0:
            images, output = address(batch), address(answer)
            check(self._core_run(self._handle, images, batch.nbytes, len(batch), output, answer.nbytes))
        return answer
