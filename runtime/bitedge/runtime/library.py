"""The shared library: where it is, and its functions with their types. ctypes releases the GIL during every call."""

from __future__ import annotations

import ctypes
import os
import sys
from ctypes import POINTER, c_char_p, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

from bitedge.runtime.errors import RuntimeFault, Status, failure

API_VERSION = 1
NAMES = {"darwin": "libbitedge.dylib"}
VARIABLE = "BITEDGE_LIBRARY"


class _Sized(ctypes.Structure):
    """A structure of the C API: its first field says how long it is."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(struct_size=ctypes.sizeof(type(self)), **fields)


class KernelStruct(_Sized):
    """`bitedge_kernel_info`."""

    _fields_ = (
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("built", c_int32),
        ("supported", c_int32),
        ("chosen", c_int32),
    )


class LoadOptions(_Sized):
    """`bitedge_load_options`."""

    _fields_ = (("struct_size", c_size_t), ("kernels", c_char_p), ("memory_limit", c_uint64))


class ContextOptions(_Sized):
    """`bitedge_context_options`."""

    _fields_ = (
        ("struct_size", c_size_t),
        ("threads", c_int32),
        ("keep_values", c_int32),
        ("memory_limit", c_uint64),
        ("spin_microseconds", c_int32),
    )


class MemoryStruct(_Sized):
    """`bitedge_memory`."""

    _fields_ = (("struct_size", c_size_t), ("model", c_uint64), ("arena", c_uint64), ("scratch", c_uint64))


class ValueStruct(_Sized):
    """`bitedge_value`."""

    _fields_ = (
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("kind", c_int),
        ("batch", c_size_t),
        ("height", c_int32),
        ("width", c_int32),
        ("channels", c_int32),
        ("data", c_void_p),
        ("bytes", c_size_t),
    )


_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "bitedge_api_version": (c_uint32, ()),
    "bitedge_version": (c_char_p, ()),
    "bitedge_last_error": (c_char_p, ()),
    "bitedge_cpu_features": (c_char_p, ()),
    "bitedge_kernel_count": (c_size_t, ()),
    "bitedge_kernel": (c_int, (c_size_t, POINTER(KernelStruct))),
    "bitedge_model_load_file": (c_int, (c_char_p, POINTER(LoadOptions), POINTER(c_void_p))),
    "bitedge_model_load_memory": (c_int, (c_char_p, c_size_t, POINTER(LoadOptions), POINTER(c_void_p))),
    "bitedge_model_free": (None, (c_void_p,)),
    "bitedge_model_describe": (c_char_p, (c_void_p,)),
    "bitedge_model_check": (c_int, (c_void_p,)),
    "bitedge_context_create": (c_int, (c_void_p, POINTER(ContextOptions), POINTER(c_void_p))),
    "bitedge_context_free": (None, (c_void_p,)),
    "bitedge_context_run": (c_int, (c_void_p, c_void_p, c_size_t, c_size_t, c_void_p, c_size_t)),
    "bitedge_context_memory": (c_int, (c_void_p, POINTER(MemoryStruct))),
    "bitedge_context_value": (c_int, (c_void_p, c_size_t, POINTER(ValueStruct))),
    "bitedge_context_set_profiling": (c_int, (c_void_p, c_int)),
    "bitedge_context_profile": (c_int, (c_void_p, POINTER(c_uint64), c_size_t)),
}


def find_library() -> Path:
    """The file that BITEDGE_LIBRARY names, or else the one that was installed with this package."""
    forced = os.environ.get(VARIABLE)
    if forced:
        if not Path(forced).is_file():
            raise RuntimeFault(f"{VARIABLE} names {forced}, which is not a file", Status.IO)
        return Path(forced)
    from bitedge import runtime

    name = NAMES.get(sys.platform, "libbitedge.so")
    for folder in runtime.__path__:
        if (path := Path(folder) / name).is_file():
            return path
    raise RuntimeFault(
        f"{name} was not found in {', '.join(runtime.__path__)}: install the package, or set {VARIABLE}", Status.IO
    )


@cache
def library() -> ctypes.CDLL:
    """The library, loaded once, every function typed."""
    path = find_library()
    try:
        core = ctypes.CDLL(str(path))
    except OSError as error:
        raise RuntimeFault(f"{path} cannot be loaded: {error}", Status.IO) from None
    core.bitedge_api_version.restype = c_uint32
    if (found := core.bitedge_api_version()) != API_VERSION:
        raise RuntimeFault(f"{path} has API version {found}, expected {API_VERSION}: reinstall bitedge", Status.IO)
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(core, name)
        function.restype = result
        function.argtypes = arguments
    return core


def call(name: str, *arguments: Any) -> None:
    """Call a function that returns a status, and raise if it is not OK."""
    check(getattr(library(), name)(*arguments))


def check(code: int) -> None:
    """Raise what a status stands for, unless it is OK, which is 0."""
    if code:
        raise failure(code, library().bitedge_last_error().decode(errors="replace"))
