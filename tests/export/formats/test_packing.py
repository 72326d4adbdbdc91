"""Packed bits: the convention as assertions, golden bytes, and the core's own opinion."""

from __future__ import annotations

import numpy as np
import pytest

from bitedge.export.formats.gguf.packing import pack, unpack, words

SIZES = [1, 3, 7, 8, 9, 31, 32, 33, 63, 64, 65, 127, 128, 129, 512]


def test_golden_bytes() -> None:
    values = np.ones(66)
    values[[0, 3, 9, 63, 64]] = -1
    assert pack(values).tobytes().hex() == "0902000000000080" + "0100000000000000"


@pytest.mark.parametrize("channels", SIZES)
def test_bit_is_negative_least_significant_first_tail_zero(channels: int) -> None:
    values = np.random.default_rng(channels).choice([-1, 1], (4, 3, channels)).astype(np.int8)
    packed = pack(values)
    assert packed.shape == (4, 3, words(channels))
    for channel in range(words(channels) * 64):
        bit = (packed[..., channel // 64] >> np.uint64(channel % 64)) & np.uint64(1)
        expected = values[..., channel] < 0 if channel < channels else np.zeros((4, 3), bool)
        np.testing.assert_array_equal(bit.astype(bool), expected)


@pytest.mark.parametrize("channels", SIZES)
def test_unpack_reverses_pack(channels: int) -> None:
    values = np.random.default_rng(channels).choice([-1, 1], (2, 5, channels)).astype(np.int8)
    np.testing.assert_array_equal(unpack(pack(values), channels), values)


def test_zero_and_negative_zero_are_plus_one() -> None:
    assert pack(np.array([0.0, -0.0, -1e-45, 1e-45], np.float32)).tolist() == [0b0100]
