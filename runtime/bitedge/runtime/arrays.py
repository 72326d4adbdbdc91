"""Numpy arrays on their way into the core and out of it."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from bitedge.runtime.errors import RuntimeFault
from bitedge.runtime.library import ValueStruct

Array = np.ndarray[Any, Any]
Shape = tuple[int, int, int]

KINDS = ("uint8", "float32", "bits")
"""Names of `bitedge_kind`, in its order."""


def checked_images(images: object, dtype: np.dtype[Any], shape: Shape) -> Array:
    """The images as a contiguous array of the model's type, [N, height, width, channels]; refused when they are not."""
    if isinstance(images, np.ndarray) and images.dtype == dtype and images.shape[1:] == shape:
        return np.ascontiguousarray(images)
    raise RuntimeFault(_refusal(images, dtype, shape))


def _refusal(images: object, kind: np.dtype[Any], shape: Shape) -> str:
    wanted = f"expected images as a {kind} array of shape [N, {', '.join(map(str, shape))}]"
    if not isinstance(images, np.ndarray):
        return f"{wanted}, got {type(images).__name__}; convert with numpy.asarray"
    if images.dtype != kind:
        return f"{wanted}, got {images.dtype}; convert with .astype(numpy.{kind})"
    hint = "; a single image needs a batch axis: image[None]" if images.shape == shape else ""
    return f"{wanted}, got {list(images.shape)}{hint}"


def address(array: Array) -> int:
    """Where the elements are. `array.ctypes` says so too, by Python code that is cold after a model has run."""
    return int(array.__array_interface__["data"][0])


def unpack_bits(words: Array, channels: int) -> Array:
    """Packed 64-bit words along the last axis as int8: bit 0 is +1, bit 1 is -1."""
    octets = np.ascontiguousarray(words).view(np.uint8)
    bits = np.unpackbits(octets, axis=-1, count=channels, bitorder="little")
    return np.asarray(1 - 2 * bits.view(np.int8), dtype=np.int8)


def copy_value(value: ValueStruct) -> Array:
    """A value of the last run as an array of its own, NHWC; bits become int8 ±1."""
    kind = KINDS[value.kind]
    pixels = (value.batch, value.height, value.width)
    raw = ctypes.string_at(value.data, value.bytes)
    if kind == "bits":
        words = np.frombuffer(raw, np.uint64).reshape(*pixels, (value.channels + 63) // 64)
        return unpack_bits(words, value.channels)
    return np.frombuffer(raw, np.dtype(kind)).reshape(*pixels, value.channels).copy()
