"""Images for requests, from fixed seeds."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def pixels(seed: int = 0, height: int = 32, width: int = 32) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def encoded(picture: NDArray[Any] | Image.Image, format: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image = picture if isinstance(picture, Image.Image) else Image.fromarray(picture)
    image.save(file, format=format, **options)
    return file.getvalue()


def png(seed: int = 0, height: int = 32, width: int = 32) -> bytes:
    return encoded(pixels(seed, height, width))
