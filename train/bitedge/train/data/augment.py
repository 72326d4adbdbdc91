"""Random views of one decoded image, for folders: each is a pure function of the image and a random generator."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from PIL import Image, ImageOps

from bitedge.train.data.preprocessing import INTERPOLATIONS, Preprocessing, fit_image, upright_rgb

Augmentation: TypeAlias = Callable[[Image.Image, Preprocessing, np.random.Generator], Image.Image]

AREA = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
ATTEMPTS = 10
PAD = 4


def resized_crop(image: Image.Image, preprocessing: Preprocessing, rng: np.random.Generator) -> Image.Image:
    """Resize a random part, 8 to 100 % of the area at a ratio of 3/4 to 4/3, and mirror every second one.

    Szegedy et al., Going Deeper with Convolutions, https://arxiv.org/abs/1409.4842.
    """
    image = upright_rgb(image)
    height, width = preprocessing["size"]
    part = image.resize(
        (width, height), INTERPOLATIONS[preprocessing["interpolation"]], box=random_box(image.size, rng)
    )
    return ImageOps.mirror(part) if rng.random() < 0.5 else part


def random_box(size: tuple[int, int], rng: np.random.Generator) -> tuple[int, int, int, int]:
    """Return left, top, right and bottom of a random part; after ten misses, the centre at the nearest ratio."""
    full_width, full_height = size
    for _ in range(ATTEMPTS):
        area = full_width * full_height * rng.uniform(*AREA)
        ratio = math.exp(rng.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        width, height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < width <= full_width and 0 < height <= full_height:
            left = int(rng.integers(full_width - width + 1))
            top = int(rng.integers(full_height - height + 1))
            return left, top, left + width, top + height
    width = max(1, min(full_width, round(full_height * RATIO[1])))
    height = max(1, min(full_height, round(full_width / RATIO[0])))
    left, top = (full_width - width) // 2, (full_height - height) // 2
    return left, top, left + width, top + height


def crop_flip(image: Image.Image, preprocessing: Preprocessing, rng: np.random.Generator) -> Image.Image:
    """Fit the image as for evaluation, shift it by up to 4 pixels over black, and mirror every second one."""
    image = fit_image(image, preprocessing)
    left, top = (int(offset) for offset in rng.integers(-PAD, PAD + 1, size=2))
    shifted = image.crop((left, top, left + image.width, top + image.height))
    return ImageOps.mirror(shifted) if rng.random() < 0.5 else shifted


AUGMENTATIONS: dict[str, Augmentation] = {"resized_crop": resized_crop, "crop_flip": crop_flip}
