from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, PngImagePlugin
from tests.serve.pictures import encoded, pixels, png

from bitedge.serve.api.errors import ServeError
from bitedge.serve.inference.preprocessing import ImageLimits, Preprocessing, load_image
from bitedge.serve.slight import MOST_BYTES, read_slight

LIMITS = ImageLimits()
COLOUR = Preprocessing(height=32, width=32)
GREY = Preprocessing(height=28, width=28, channels=1)
CROPPED = Preprocessing(height=32, width=32, resize=36)


def smooth(width: int, height: int, mode: str = "RGB") -> Image.Image:
    small = Image.fromarray(pixels(3, 6, 6)).resize((width, height), Image.Resampling.BICUBIC)
    return small.convert(mode)


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def with_chunk(data: bytes, added: bytes) -> bytes:
    return data[:33] + added + data[33:]


def either(decode: Callable[[], NDArray[np.uint8]]) -> list[int] | str:
    try:
        return [int(value) for value in decode().ravel()]
    except ServeError as error:
        return type(error).__name__


@pytest.mark.parametrize("geometry", [COLOUR, GREY, CROPPED], ids=["colour", "grey", "cropped"])
@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("size", [(32, 32), (28, 28), (64, 48), (1, 1), (50, 40)])
def test_plain_pngs_are_decoded_as_pillow_decodes_them(
    size: tuple[int, int], mode: str, geometry: Preprocessing
) -> None:
    data = encoded(smooth(*size, mode))
    image = read_slight(data, geometry, LIMITS)
    assert image is not None
    np.testing.assert_array_equal(image.pixels(geometry, LIMITS), load_image(data, geometry))


def test_chunks_without_a_meaning_and_several_of_rows_are_passed_over() -> None:
    data = encoded(smooth(32, 32), dpi=(72, 72))
    rows = data.index(b"IDAT") - 4
    length = struct.unpack(">I", data[rows : rows + 4])[0]
    content = data[rows + 8 : rows + 8 + length]
    split = data[:rows] + chunk(b"gAMA", bytes(4)) + chunk(b"IDAT", content[:50]) + chunk(b"IDAT", content[50:])
    split += data[-12:]
    image = read_slight(split, COLOUR, LIMITS)
    assert image is not None
    np.testing.assert_array_equal(image.pixels(COLOUR, LIMITS), load_image(data, COLOUR))


def described() -> bytes:
    text = PngImagePlugin.PngInfo()
    text.add_text("comment", "hello", zip=True)
    return encoded(smooth(32, 32), pnginfo=text)


BOMB = chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(1 << 20)))
NOT_SLIGHT = {
    "another format": encoded(smooth(32, 32), "JPEG"),
    "transparency": encoded(smooth(32, 32, "RGBA")),
    "a palette": encoded(smooth(32, 32, "P")),
    "16 bits": encoded(Image.fromarray(np.zeros((32, 32), np.uint16))),
    "text": described(),
    "compressed text": with_chunk(png(), BOMB),
    "a colour profile": encoded(smooth(32, 32), icc_profile=bytes(200)),
    "exif": encoded(smooth(32, 32), exif=Image.Exif().tobytes()),
    "many chunks": with_chunk(png(), 20 * chunk(b"gAMA", bytes(4))),
    "an odd length": with_chunk(png(), chunk(b"gAMA", bytes(5))),
    "a damaged checksum": with_chunk(png(), chunk(b"gAMA", bytes(4))[:-1] + b"!"),
    "bytes after the end": png() + b"more",
    "no end": png()[:-12],
    "many bytes": with_chunk(png(), chunk(b"IDAT", bytes(MOST_BYTES))),
    "many pixels": encoded(smooth(65, 64)),
    "interlacing": png()[:28] + b"\1" + struct.pack(">I", zlib.crc32(png()[12:28] + b"\1")) + png()[33:],
    "nothing": b"",
}


@pytest.mark.parametrize("what", NOT_SLIGHT)
def test_whatever_could_take_longer_is_not_slight(what: str) -> None:
    assert read_slight(NOT_SLIGHT[what], COLOUR, LIMITS) is None


def test_an_image_that_grows_when_it_is_resized_is_not_slight() -> None:
    assert read_slight(encoded(smooth(60, 2)), COLOUR, LIMITS) is not None
    assert read_slight(encoded(smooth(60, 2)), CROPPED, LIMITS) is None
    assert read_slight(encoded(smooth(2, 2)), Preprocessing(height=224, width=224), LIMITS) is None
    assert read_slight(png(), COLOUR, ImageLimits(pixels=1000)) is None


def test_damaged_ones_meet_the_judgement_of_pillow() -> None:
    rng = np.random.default_rng(8)
    original = np.frombuffer(encoded(smooth(32, 32)), np.uint8)
    slight = 0
    for _ in range(2000):
        damaged = original.copy()
        places = rng.integers(0, len(damaged), rng.integers(1, 4))
        damaged[places] = rng.integers(0, 256, len(places), dtype=np.uint8)
        data = damaged.tobytes()[: None if rng.random() < 0.7 else int(rng.integers(len(damaged)))]
        image = read_slight(data, COLOUR, LIMITS)
        if image is not None:
            slight += 1
            found = image
            expected = either(lambda data=data: load_image(data, COLOUR))  # type: ignore[misc]
            assert either(lambda found=found: found.pixels(COLOUR, LIMITS)) == expected  # type: ignore[misc]
    assert slight > 500
