"""Images that are certain to be decoded in a fraction of a millisecond, whatever their bytes hold.

Certain means: by their structure, before any decoder sees them. Only plain PNGs qualify: few bytes, few pixels before
and after resizing, 8 bits of grey or colour, not interlaced, and no chunk beyond those below, so that nothing can grow
a thousandfold and no profile, text or Exif is there to be read. (A JPEG of few pixels may hold hundreds of scans.)
Their compressed rows go straight to Pillow's decoder, which is half the work of opening them as files.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from bitedge.serve.inference.preprocessing import ImageLimits, Preprocessing, fit_pixels, load_image, to_mode

MOST_BYTES: Final = 8192
MOST_PIXELS: Final = 64 * 64
MOST_CHUNKS: Final = 16

START: Final = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
HEADER: Final = struct.Struct(">16xII5s4x")
CHUNK: Final = struct.Struct(">I4s")
END: Final = b"\x00\x00\x00\x00IEND\xaeB`\x82"
MODES: Final = {b"\x08\x00\x00\x00\x00": "L", b"\x08\x02\x00\x00\x00": "RGB"}  # depth, colour, and three zeros
LENGTHS: Final = {b"gAMA": 4, b"sRGB": 1, b"cHRM": 32, b"pHYs": 9, b"tIME": 7}  # chunks without a meaning here


@dataclass(frozen=True, slots=True)
class SlightImage:
    """The parts of a plain PNG."""

    mode: str
    size: tuple[int, int]
    rows: bytes  # filtered and compressed
    file: bytes

    def pixels(self, geometry: Preprocessing, limits: ImageLimits) -> NDArray[np.uint8]:
        """Decode, resize and crop: uint8 `[height, width, channels]`."""
        try:
            image = Image.frombytes(self.mode, self.size, self.rows, "zip", self.mode, 0)
        except ValueError:  # damaged; Pillow, given the file, knows the words for it
            return load_image(self.file, geometry, limits=limits)
        return fit_pixels(to_mode(image, geometry.mode), geometry, limits)


def read_slight(data: bytes, geometry: Preprocessing, limits: ImageLimits) -> SlightImage | None:
    """Take a plain PNG apart; None for all other images, and for work that is not small."""
    if not HEADER.size <= len(data) <= MOST_BYTES or not data.startswith(START):
        return None
    width, height, kind = HEADER.unpack_from(data)
    mode, most = MODES.get(kind), min(MOST_PIXELS, limits.pixels)
    if mode is None or not 0 < width * height <= most or not checks(data[12 : HEADER.size]):
        return None
    resized = geometry.resized(width, height)
    rows = read_rows(data) if resized[0] * resized[1] <= MOST_PIXELS else None
    return None if rows is None else SlightImage(mode, (width, height), rows, data)


def read_rows(data: bytes) -> bytes | None:
    """The compressed rows of a PNG, or None if it holds anything but rows and chunks without a meaning here."""
    parts: list[bytes] = []
    place = HEADER.size
    for _ in range(MOST_CHUNKS):
        if data[place:] == END:
            return b"".join(parts)
        if place + CHUNK.size > len(data):
            return None
        length, kind = CHUNK.unpack_from(data, place)
        content, after = place + CHUNK.size, place + CHUNK.size + length
        place = after + 4
        if kind == b"IDAT":
            parts.append(data[content:after])
        elif parts or LENGTHS.get(kind) != length or not checks(data[content - 4 : place]):
            return None
    return None


def checks(chunk: bytes) -> bool:
    """Whether a chunk, from its name to its checksum, is undamaged."""
    return zlib.crc32(chunk[:-4]).to_bytes(4, "big") == chunk[-4:]
