"""The inputs of golden vectors: the generator against its published outputs, and the order of its bytes."""

from __future__ import annotations

import numpy as np

from bitedge.runtime.golden import golden_images, splitmix64


def test_splitmix64_gives_the_published_sequence() -> None:
    # The first outputs for the seed 1234567 in the reference implementation by Vigna.
    assert splitmix64(1234567, 5).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_bytes_are_little_endian_in_hwc_order_and_seeds_wrap() -> None:
    pixels = golden_images("uint8", (2, 3, 3), 2**64 - 1, 2)
    assert pixels.shape == (2, 2, 3, 3)
    for image, seed in zip(pixels, (2**64 - 1, 0), strict=True):
        words = splitmix64(seed, 3).tolist()
        assert image.tobytes() == b"".join(word.to_bytes(8, "little") for word in words)[:18]
    numbers = golden_images("float32", (2, 3, 3), 2**64 - 1, 2)
    assert numbers.dtype == np.float32
    np.testing.assert_array_equal(numbers, (2 * pixels.astype(np.float64) - 255) / 256)
