"""Arrays and numbers as C source."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

WIDTH = 116
_TYPES = {
    np.dtype(np.uint8): "uint8_t",
    np.dtype(np.int16): "int16_t",
    np.dtype(np.uint16): "uint16_t",
    np.dtype(np.int32): "int32_t",
    np.dtype(np.uint32): "uint32_t",
    np.dtype(np.float32): "float",
}


def array(name: str, content: NDArray[Any]) -> str:
    """Define a constant array."""
    flat = content.reshape(-1)
    kind = _TYPES[flat.dtype]
    body = textwrap.fill(
        ", ".join(_literals(flat)), WIDTH, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False
    )
    return f"static const {kind} {name}[{flat.size}] = {{\n{body}}};\n"


def number(value: float) -> str:
    """Write a float32 so that it is read back to the bit."""
    digits = f"{np.float32(value):.9g}"
    return (digits if any(mark in digits for mark in ".en") else f"{digits}.0") + "f"


def string(value: str) -> str:
    """Write a string literal; what is not ASCII is written byte by byte, in octal."""
    plain = {ord('"'): '\\"', ord("\\"): "\\\\", ord("?"): "\\?"}
    return '"' + "".join(plain.get(c, chr(c) if 32 <= c < 127 else f"\\{c:03o}") for c in value.encode()) + '"'


def comment(value: str) -> str:
    """Make text harmless inside a comment."""
    return " ".join(value.replace("*/", "* /").replace("/*", "/ *").split())


def _literals(flat: NDArray[Any]) -> Iterable[str]:
    if flat.dtype == np.float32:
        return (number(each) for each in flat)
    if flat.dtype == np.uint32:
        return (f"0x{each:08x}u" for each in flat.tolist())
    return map(str, flat.tolist())
