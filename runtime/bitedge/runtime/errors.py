"""What goes wrong in the runtime, and whose fault it is."""

from __future__ import annotations

from enum import IntEnum


class Status(IntEnum):
    """The codes of the C API; include/bitedge/bitedge.h documents each."""

    OK = 0
    ARGUMENT = 1
    IO = 2
    FORMAT = 3
    VERSION = 4
    CHECKSUM = 5
    UNAVAILABLE = 6
    GOLDEN = 7
    MEMORY = 8
    INTERNAL = 9


class RuntimeFault(ValueError):
    """The model, the array or the setting that was given cannot be used; the message says why in one line."""

    bad_input = True

    def __init__(self, message: str, status: Status = Status.ARGUMENT) -> None:
        super().__init__(message)
        self.status = status


def failure(code: int, message: str) -> Exception:
    """The exception for a failed call: the caller's fault, no memory, or a bug in the core."""
    status = Status(code)
    if status is Status.MEMORY:
        return MemoryError(message)
    if status is Status.INTERNAL:
        return RuntimeError(f"the bitedge core failed: {message}")
    return RuntimeFault(message, status)
