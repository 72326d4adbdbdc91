"""What this machine and this build offer."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from bitedge.runtime.library import KernelStruct, call, library


@dataclass(frozen=True)
class Kernels:
    """A set of kernels for one instruction set."""

    name: str
    built: bool
    supported: bool
    chosen: bool
    """Taken when a model is loaded without a name; the environment variable BITEDGE_KERNELS is considered."""


def available_kernels() -> tuple[Kernels, ...]:
    """Every set of kernels that the core knows, best first; one runs when it is both built and supported."""
    rows = []
    for index in range(library().bitedge_kernel_count()):
        row = KernelStruct()
        call("bitedge_kernel", index, ctypes.byref(row))
        rows.append(Kernels(row.name.decode(), bool(row.built), bool(row.supported), bool(row.chosen)))
    return tuple(rows)


def cpu_features() -> tuple[str, ...]:
    """Names of the instruction sets that the CPU has and the operating system lets us use."""
    return tuple(library().bitedge_cpu_features().decode().split())


def version() -> str:
    """Version of the C++ core."""
    return str(library().bitedge_version().decode())
