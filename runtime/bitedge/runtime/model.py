"""A packed model, loaded and ready to run."""

from __future__ import annotations

import ctypes
import json
import os
import weakref
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bitedge.runtime.arrays import Array
from bitedge.runtime.context import Context, Memory, checked_limit
from bitedge.runtime.description import NodeInfo, Shape, ValueInfo, nodes_of, values_of
from bitedge.runtime.errors import RuntimeFault, Status
from bitedge.runtime.library import LoadOptions, call, library

CHUNK = 16
"""Images at a time when every value is kept."""


class Model:
    """A model file, checked and prepared for this CPU. It never changes and may be shared by threads.

    `run` uses one context behind a lock; threads that run at the same time each take their own from `context()`.

        model = Model("model.gguf", threads=2)
        logits = model.run(images)  # uint8 [N, height, width, channels] to float32 [N, outputs]
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | bytes,
        *,
        threads: int = 1,
        kernels: str | None = None,
        memory_limit: int | None = None,
    ) -> None:
        """Load a file, or the bytes of one, for the named kernels; None takes those of BITEDGE_KERNELS, or the best.

        The model, and the memory that `run` works in, may each take `memory_limit` bytes; MemoryError says what they
        need. None allows 256 MiB and 64 times the size of the file, the latter for each image.
        """
        handle = ctypes.c_void_p()
        limit = checked_limit(memory_limit)
        options = ctypes.byref(LoadOptions(kernels=None if kernels is None else kernels.encode(), memory_limit=limit))
        if isinstance(source, bytes):
            self.path = None
            call("bitedge_model_load_memory", source, len(source), options, ctypes.byref(handle))
        else:
            self.path = Path(source)
            if b"\0" in (encoded := os.fsencode(self.path)):
                raise RuntimeFault(f"{str(self.path)!r}: a path cannot hold a NUL", Status.IO)
            call("bitedge_model_load_file", encoded, options, ctypes.byref(handle))
        self.handle = handle
        weakref.finalize(self, library().bitedge_model_free, handle)
        self._description: dict[str, Any] = json.loads(library().bitedge_model_describe(handle))
        self.values: tuple[ValueInfo, ...] = values_of(self._description)
        self._context = Context(self, threads=threads, memory_limit=memory_limit)

    def __repr__(self) -> str:
        shapes = f"{self.input_kind} {list(self.input_shape)} -> {self.output_count}"
        return f"Model({self.name!r}, {shapes}, kernels {self.kernels!r})"

    @property
    def name(self) -> str:
        """Name of the network."""
        return str(self._description["name"])

    @property
    def kernels(self) -> str:
        """The set of kernels that runs it."""
        return str(self._description["kernels"])

    @property
    def input_kind(self) -> str:
        """`uint8` or `float32`."""
        return self.values[0].kind

    @property
    def input_shape(self) -> Shape:
        """Height, width, channels."""
        return self.values[0].shape

    @cached_property
    def output_count(self) -> int:
        """Numbers in the answer to one image."""
        return int(np.prod(self._description["output"]["shape"]))

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """One name per output; empty when the file has none."""
        return tuple(self._description["labels"])

    @property
    def preprocessing(self) -> dict[str, Any] | None:
        """How an image becomes the model's input (docs/architecture.md), if the file says."""
        found: dict[str, Any] | None = self._description["preprocessing"]
        return found

    @property
    def training(self) -> dict[str, Any] | None:
        """How the model was trained: recipe, seed, data set, accuracy; if the file says."""
        found: dict[str, Any] | None = self._description["training"]
        return found

    @property
    def metadata(self) -> dict[str, Any]:
        """The key-values of the file, but for the graph's nodes and the labels; the JSON ones parsed."""
        parsed = {"bitedge.preprocessing": self.preprocessing, "bitedge.training": self.training}
        entries: dict[str, Any] = self._description["metadata"]
        return {key: parsed.get(key, value) for key, value in entries.items()}

    @property
    def file_bytes(self) -> int:
        """Size of the file."""
        return int(self._description["file_bytes"])

    @cached_property
    def nodes(self) -> list[NodeInfo]:
        """The operators in the order in which they run."""
        return nodes_of(self._description)

    @property
    def memory(self) -> Memory:
        """What the model holds, and the memory that `run` works in."""
        return self._context.memory

    def context(
        self,
        threads: int = 1,
        *,
        keep_values: bool = False,
        memory_limit: int | None = None,
        spin_microseconds: int | None = None,
    ) -> Context:
        """Memory and threads of its own to run this model in, for one caller.

        Every context has `threads` threads: those that run at once should have no more together than there are cores.
        A thread without work looks for it for `spin_microseconds` before it sleeps; None is 100, and 0 leaves the cores
        to others.
        """
        return Context(
            self,
            threads=threads,
            keep_values=keep_values,
            memory_limit=memory_limit,
            spin_microseconds=spin_microseconds,
        )

    def run(self, images: Array) -> Array:
        """Answer a batch of images: [N, height, width, channels] to float32 [N, outputs]."""
        return self._context.run(images)

    def activations(self, images: Array) -> dict[str, Array]:
        """Every value of the graph by name, NHWC, the input included; bits as int8 ±1."""
        context = self.context(self._context.threads, keep_values=True)
        if not isinstance(images, np.ndarray) or len(images.shape) == 0 or len(images) <= CHUNK:
            return context.activations(images)
        parts = [context.activations(images[start : start + CHUNK]) for start in range(0, len(images), CHUNK)]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def profile(self, images: Array, runs: int = 10) -> list[float]:
        """Mean wall time of every node over so many runs of the batch, in seconds, in the order of `nodes`."""
        return self._context.profile(images, runs)

    def check(self) -> None:
        """Run the golden vectors of the file; raises RuntimeFault when an answer differs or there are none."""
        call("bitedge_model_check", self.handle)
