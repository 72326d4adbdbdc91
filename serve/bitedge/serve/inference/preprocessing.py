"""Decode an image safely and bring it to the pixels that a network was trained on.

Only Pillow and numpy: `bitedge predict` uses this without the web framework.

The bytes come from strangers, so: four formats and no others, the pixel count is read from the header before
anything is decoded, and decoding stops when its time is used up. Pillow decodes in blocks that it reads from the file
object, so a file object that looks at the clock stops even a JPEG with thousands of scans in the middle of its work.
"""

from __future__ import annotations

import io
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageChops, ImageOps, UnidentifiedImageError

from bitedge.serve.api.errors import ImageError, MediaTypeError, ServeError, TooLargeError

FORMATS: Final = ("JPEG", "PNG", "WEBP", "BMP")
MEDIA_TYPES: Final = ("image/jpeg", "image/png", "image/webp", "image/bmp")
INTERPOLATIONS: Final = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}
BLOCK: Final = 4096  # bytes between two looks at the clock
ORIENTATION_KEYS: Final = ("exif", "xmp", "XML:com.adobe.xmp", "Raw profile type exif")
SIXTEEN_BIT: Final = ("I;16", "I;16L", "I;16B", "I;16N")


@dataclass(frozen=True, kw_only=True)
class ImageLimits:
    """How much one image may cost."""

    pixels: int = 16_000_000
    seconds: float = 2.0


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """The geometry that a network expects, read from its `preprocessing` metadata."""

    height: int
    width: int
    channels: int = 3
    resize: int | None = None
    interpolation: str = "bilinear"

    @staticmethod
    def of(data: Mapping[str, Any]) -> Preprocessing:
        """Check the plain data of `docs/architecture.md`; the arithmetic (scale, offset) is inside the network."""
        try:
            height, width = (int(side) for side in data["size"])
            resize = None if data.get("resize") is None else int(data["resize"])
            channels = len(data.get("scale", (1, 1, 1)))
        except (KeyError, TypeError, ValueError) as error:
            raise ServeError(f"preprocessing needs size [height, width] and numbers, got {data!r}") from error
        interpolation = str(data.get("interpolation", "bilinear"))
        if min(height, width) < 1 or channels not in (1, 3):
            raise ServeError(f"preprocessing needs a positive size and 1 or 3 channels, got {data!r}")
        if resize is not None and resize < max(height, width):
            raise ServeError(f"preprocessing: resize {resize} is smaller than the crop {height}x{width}")
        if interpolation not in INTERPOLATIONS:
            raise ServeError(f"preprocessing: interpolation is one of {', '.join(INTERPOLATIONS)}, got {interpolation}")
        return Preprocessing(height=height, width=width, channels=channels, resize=resize, interpolation=interpolation)

    @property
    def mode(self) -> str:
        """Pillow's name for the network's channels."""
        return "L" if self.channels == 1 else "RGB"


class TimedFile(io.BytesIO):
    """Bytes that can be read only until the time is used up."""

    def __init__(self, data: bytes, seconds: float) -> None:
        super().__init__(data)
        self.expires = time.monotonic() + seconds

    def read(self, size: int | None = -1, /) -> bytes:
        """Read, unless it is too late."""
        if time.monotonic() > self.expires:
            raise TimeoutError
        return super().read(size)


def open_image(data: bytes, limits: ImageLimits) -> Image.Image:
    """Read the header only, and refuse what is too large or of another format."""
    try:
        image = Image.open(TimedFile(data, limits.seconds), formats=FORMATS)
    except UnidentifiedImageError:
        got = f"{len(data)} bytes that start with {data[:8].hex(' ')}" if data else "no bytes at all"
        raise MediaTypeError(f"expected a {', '.join(FORMATS)} image, got {got}") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise TooLargeError(f"an image may have {limits.pixels} pixels; this one has many more") from None
    except Exception as error:  # Pillow's plugins meet hostile bytes with every exception there is
        raise ImageError(f"the image's header cannot be read: {_one_line(error)}") from None
    width, height = image.size
    if width * height > limits.pixels:
        raise TooLargeError(f"an image may have {limits.pixels} pixels, this one has {width}x{height}; scale it down")
    return image


def prepare(image: Image.Image, preprocessing: Preprocessing, limits: ImageLimits) -> NDArray[np.uint8]:
    """Decode an opened image, turn it upright, and resize and crop it: uint8 `[height, width, channels]`."""
    try:
        image.decodermaxblock = BLOCK  # type: ignore[attr-defined]
        image.load()
        if any(key in image.info for key in ORIENTATION_KEYS):
            image = ImageOps.exif_transpose(image)
        plain = to_mode(image, preprocessing.mode)
    except TimeoutError:
        raise ImageError(f"the image takes longer than {limits.seconds:g} s to decode; send a simpler one") from None
    except Exception as error:  # as above: a damaged file is the sender's fault, whatever Pillow calls it
        raise ImageError(f"the image cannot be decoded: {_one_line(error)}") from None
    fitted = fit(plain, preprocessing, limits)
    return np.frombuffer(fitted.tobytes(), np.uint8).reshape(fitted.height, fitted.width, preprocessing.channels)


def load_image(
    source: bytes | Path, preprocessing: Mapping[str, Any] | Preprocessing, *, limits: ImageLimits | None = None
) -> NDArray[np.uint8]:
    """Decode an image file or its bytes to the uint8 `[height, width, channels]` array that a network takes."""
    limits = limits or ImageLimits()
    data = source if isinstance(source, bytes) else Path(source).read_bytes()
    geometry = preprocessing if isinstance(preprocessing, Preprocessing) else Preprocessing.of(preprocessing)
    return prepare(open_image(data, limits), geometry, limits)


def to_mode(image: Image.Image, mode: str) -> Image.Image:
    """Convert every mode that the four formats have: 16 bits keep their high byte, and transparent pixels are
    composited onto white.

    The first frame of an animation is used. Pillow itself clips 16-bit grey at 255 and drops alpha, which shows what
    nobody sees who looks at the file. Compositing works in place: a large image costs 10 bytes a pixel at its peak.
    """
    if image.mode == mode:
        return image
    if image.mode in SIXTEEN_BIT:
        image = Image.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))
    elif image.mode in ("I", "F"):
        image = Image.fromarray(np.clip(np.asarray(image, dtype=np.float64) / 257.0, 0, 255).astype(np.uint8))
    elif image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        image = image if image.mode == "RGBA" else image.convert("RGBA")
        image.paste((255, 255, 255, 255), mask=ImageChops.invert(image.getchannel("A")))
    return image if image.mode == mode else image.convert(mode)


def fit(image: Image.Image, preprocessing: Preprocessing, limits: ImageLimits) -> Image.Image:
    """Resize the shorter side to `resize` and crop the centre, or resize both sides when `resize` is not given."""
    width, height = preprocessing.width, preprocessing.height
    scaled = (width, height)
    if preprocessing.resize is not None:
        resize, short = preprocessing.resize, min(image.size)
        scaled = (resize * image.width // short, resize * image.height // short)
        if scaled[0] * scaled[1] > limits.pixels:
            raise TooLargeError(f"an image of {image.size} is too long and thin to be resized; crop it first")
    if scaled != image.size:
        image = image.resize(scaled, INTERPOLATIONS[preprocessing.interpolation])
    if scaled == (width, height):
        return image
    left, top = round((scaled[0] - width) / 2), round((scaled[1] - height) / 2)
    return image.crop((left, top, left + width, top + height))


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
