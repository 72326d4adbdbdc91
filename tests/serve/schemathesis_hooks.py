"""Real images for schemathesis, which knows no BMP."""

from __future__ import annotations

import io

import schemathesis
from hypothesis import strategies
from PIL import Image


def encode(size: tuple[int, int], color: tuple[int, int, int], format: str) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, color).save(file, format=format)
    return file.getvalue()


SIDE = strategies.integers(1, 48)
LEVEL = strategies.integers(0, 255)
for name in ("jpeg", "png", "webp", "bmp"):
    images = strategies.builds(
        encode, strategies.tuples(SIDE, SIDE), strategies.tuples(LEVEL, LEVEL, LEVEL), strategies.just(name.upper())
    )
    schemathesis.openapi.media_type(f"image/{name}", images)
