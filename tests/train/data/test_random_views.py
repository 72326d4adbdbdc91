"""The random views of folders: ranges, and what they leave alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from bitedge.train.data.augment import AREA, AUGMENTATIONS, RATIO, crop_flip, random_box, resized_crop
from bitedge.train.data.preprocessing import make_preprocessing


@given(st.integers(1, 500), st.integers(1, 500), st.integers(0, 1000))
def test_box_lies_inside(width: int, height: int, seed: int) -> None:
    left, top, right, bottom = random_box((width, height), np.random.default_rng(seed))
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height


def test_box_covers_the_documented_range() -> None:
    rng = np.random.default_rng(0)
    boxes = np.array([random_box((400, 300), rng) for _ in range(2000)])
    widths, heights = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    areas, ratios = widths * heights / 120_000, widths / heights
    assert areas.min() == pytest.approx(AREA[0], abs=0.01)
    assert areas.max() > 0.9
    assert ratios.min() == pytest.approx(RATIO[0], abs=0.02)
    assert ratios.max() == pytest.approx(RATIO[1], abs=0.02)


def test_a_very_long_image_falls_back_to_the_centre() -> None:
    left, top, right, bottom = random_box((2000, 10), np.random.default_rng(1))
    assert (top, bottom) == (0, 10)
    assert (left, right) == (993, 1006)


def test_crop_flip_shifts_over_black() -> None:
    pixels = np.random.default_rng(0).integers(1, 256, size=(16, 16, 3), dtype=np.uint8)
    padded = np.pad(pixels, ((4, 4), (4, 4), (0, 0)))
    preprocessing = make_preprocessing((16, 16))
    seen = set()
    for seed in range(200):
        view = np.asarray(crop_flip(Image.fromarray(pixels), preprocessing, np.random.default_rng(seed)))
        found = [
            (top, left, flip)
            for top in range(9)
            for left in range(9)
            for flip in (1, -1)
            if np.array_equal(padded[top : top + 16, left : left + 16][:, ::flip], view)
        ]
        assert len(found) == 1
        seen.add(found[0])
    assert {view[0] for view in seen} == {view[1] for view in seen} == set(range(9))
    assert {view[2] for view in seen} == {1, -1}


def test_resized_crop_has_the_size_and_mirrors_half() -> None:
    ramp = np.tile(np.arange(64, dtype=np.uint8)[None, :, None] * 4, (48, 1, 3))
    preprocessing = make_preprocessing((20, 24), resize=32)
    views = [
        np.asarray(resized_crop(Image.fromarray(ramp), preprocessing, np.random.default_rng(seed))).astype(int)
        for seed in range(100)
    ]
    assert {view.shape for view in views} == {(20, 24, 3)}
    mirrored = sum(view[0, 0, 0] > view[0, -1, 0] for view in views)
    assert 30 <= mirrored <= 70


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_views_are_pure(name: str) -> None:
    image = Image.fromarray(np.random.default_rng(0).integers(256, size=(40, 50, 3), dtype=np.uint8))
    preprocessing = make_preprocessing((16, 16))
    first, second = (np.asarray(AUGMENTATIONS[name](image, preprocessing, np.random.default_rng(9))) for _ in range(2))
    assert np.array_equal(first, second)
