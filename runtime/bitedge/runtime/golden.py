"""The inputs of golden vectors, generated from a seed as docs/format.md says, so that no file has to hold them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

MASK = (1 << 64) - 1
INCREMENT = np.uint64(0x9E3779B97F4A7C15)


def splitmix64(seed: int, count: int) -> NDArray[np.uint64]:
    """Give the first words of Steele, Lea and Flood's SplitMix64 (https://doi.org/10.1145/2714064.2660195)."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed & MASK) + INCREMENT * np.arange(1, count + 1, dtype=np.uint64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def golden_images(kind: str, shape: tuple[int, ...], seed: int, count: int) -> NDArray[Any]:
    """Give the images `[count, H, W, C]` of the seeds `seed`, `seed + 1`, ...: uint8, or float32 on the dyadic grid."""
    size = int(np.prod(shape))
    words = [splitmix64(seed + number, -(-size // 8)).astype("<u8") for number in range(count)]
    octets: NDArray[np.uint8] = np.stack([row.view(np.uint8)[:size].reshape(shape) for row in words])
    if kind == "uint8":
        return octets
    numbers: NDArray[np.float32] = (2 * octets.astype(np.float32) - 255) / 256
    return numbers
