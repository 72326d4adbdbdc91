"""Bits as the contract packs them: along channels, bit 1 means -1, least significant bit first, 64-bit words."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

WORD = 64


def words(channels: int) -> int:
    """Give the number of words that hold so many channels."""
    return -(-channels // WORD)


def pack(values: NDArray[Any]) -> NDArray[np.uint64]:
    """Pack the signs of the last axis; tail bits are 0."""
    *outer, channels = values.shape
    packed = np.zeros((*outer, 8 * words(channels)), np.uint8)
    packed[..., : -(-channels // 8)] = np.packbits(values < 0, axis=-1, bitorder="little")
    return packed.view("<u8")


def unpack(packed: NDArray[np.uint64], channels: int) -> NDArray[np.int8]:
    """Give the ±1 values again."""
    octets = np.ascontiguousarray(packed, dtype="<u8").view(np.uint8)
    negative = np.unpackbits(octets, axis=-1, bitorder="little", count=channels)
    return (1 - 2 * negative.astype(np.int8)).astype(np.int8)
