"""One caller's place to run a model."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bitedge.runtime.arrays import Array, address, checked_images, copy_value
from bitedge.runtime.errors import RuntimeFault
from bitedge.runtime.library import ContextOptions, MemoryStruct, ValueStruct, call, check, library

if TYPE_CHECKING:
    from bitedge.runtime.model import Model

MOST_THREADS = 256
MOST_BYTES = 2**64 - 1


@dataclass(frozen=True)
class Memory:
    """What a model and a context hold, in bytes."""

    model: int
    """Of the model, shared by all of its contexts: repacked weights, tables, texts."""
    arena: int
    """Of the context: values and scratch; 0 before the first run."""
    scratch: int
    """The part of the arena that the neediest layer works in."""


def checked_limit(memory_limit: int | None) -> int:
    """The limit as the core takes it, where 0 stands for its own default."""
    if memory_limit is None:
        return 0
    if isinstance(memory_limit, bool) or not isinstance(memory_limit, int) or not 1 <= memory_limit <= MOST_BYTES:
        raise RuntimeFault(f"memory_limit: expected a number of bytes, at least 1, got {memory_limit!r}")
    return memory_limit


def _checked_spin(microseconds: int | None) -> int:
    """How long a thread looks for work, as the core takes it: 0 is its default, -1 not at all."""
    if microseconds is None:
        return 0
    if isinstance(microseconds, bool) or not isinstance(microseconds, int) or not 0 <= microseconds <= 1_000_000:
        raise RuntimeFault(f"spin_microseconds: expected a whole number from 0 to 1000000, got {microseconds!r}")
    return microseconds or -1


_contexts: weakref.WeakSet[Context] = weakref.WeakSet()


def _after_fork() -> None:
    for context in _contexts:
        context.after_fork()


os.register_at_fork(after_in_child=_after_fork)


class Context:
    """Memory and threads to run a model in; made by `Model.context`, one for each thread that runs.

    Contexts of one model run side by side. A context that is called from two threads runs them one after the other.
    """

    def __init__(
        self,
        model: Model,
        *,
        threads: int = 1,
        keep_values: bool = False,
        memory_limit: int | None = None,
        spin_microseconds: int | None = None,
    ) -> None:
        if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= MOST_THREADS:
            raise RuntimeFault(f"threads: expected a whole number from 1 to {MOST_THREADS}, got {threads!r}")
        self._model = model
        self._input = (np.dtype(model.input_kind), model.input_shape)
        self._core_run = library().bitedge_context_run
        self._options = ContextOptions(
            threads=threads,
            keep_values=int(keep_values),
            memory_limit=checked_limit(memory_limit),
            spin_microseconds=_checked_spin(spin_microseconds),
        )
        self.threads = threads
        self._create()
        _contexts.add(self)

    def _create(self) -> None:
        self._lock = threading.Lock()
        handle = ctypes.c_void_p()
        call("bitedge_context_create", self._model.handle, ctypes.byref(self._options), ctypes.byref(handle))
        self._handle = handle
        self._free = weakref.finalize(self, library().bitedge_context_free, handle)

    def after_fork(self) -> None:
        """In a child: start anew if another thread was using the context, which is then half done for ever."""
        if self._lock.locked():
            self._free.detach()
            self._create()

    @property
    def memory(self) -> Memory:
        """What the model and this context hold now."""
        row = MemoryStruct()
        call("bitedge_context_memory", self._handle, ctypes.byref(row))
        return Memory(model=row.model, arena=row.arena, scratch=row.scratch)

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
