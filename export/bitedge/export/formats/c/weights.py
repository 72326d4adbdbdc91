"""Weights and thresholds as the C operators read them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitedge.export.formats.c.memory import WORD, words
from bitedge.export.ir import ops


def pack(values: NDArray[Any]) -> NDArray[np.uint32]:
    """Pack the signs of the last axis into 32-bit words; bit 1 is -1, tail bits are 0."""
    *outer, channels = values.shape
    octets = np.zeros((*outer, words(channels) * WORD // 8), np.uint8)
    octets[..., : -(-channels // 8)] = np.packbits(values < 0, axis=-1, bitorder="little")
    return octets.view("<u4").astype(np.uint32)


def binary_weights(op: ops.BinaryConv2d) -> NDArray[np.uint32]:
    """Interleave the words of four outputs, group by group; a group's missing outputs are all +1."""
    packed = pack(op.weight)
    groups, outputs = op.window.groups, len(packed) // op.window.groups
    rows = packed.reshape(groups, outputs, -1)
    fours = np.pad(rows, ((0, 0), (0, -outputs % 4), (0, 0))).reshape(groups, -1, 4, rows.shape[2])
    return fours.swapaxes(2, 3)


def image_weights(op: ops.ImageConv2d) -> NDArray[np.uint8]:
    """Give a byte for every four taps: their signs, and 16 times the index of the four modulo 16."""
    flat = op.weight.reshape(len(op.weight), -1)
    negative = np.pad(flat < 0, ((0, 0), (0, -flat.shape[1] % 4))).reshape(len(flat), -1, 4)
    signs = negative @ np.array([1, 2, 4, 8])
    places: NDArray[np.uint8] = (signs + 16 * (np.arange(signs.shape[1]) % 16)).astype(np.uint8)
    return places


def thresholds(op: ops.BinaryConv2d | ops.ImageConv2d, threshold: NDArray[np.int32]) -> NDArray[Any]:
    """Give thresholds in 16 bits where they fit; those that are never, or always, reached stay so."""
    bound = ops.accumulator_bound(op)
    clipped = np.clip(threshold, -bound, bound + 1)
    return clipped.astype(np.int16 if bound < np.iinfo(np.int16).max else np.int32)
