from __future__ import annotations

import io
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageSequence

from bitedge.serve.api.errors import ImageError, MediaTypeError, ServeError, TooLargeError
from bitedge.serve.inference.preprocessing import ImageLimits, Preprocessing, TimedFile, load_image, open_image, prepare

SQUARE = {"size": [32, 32], "resize": None, "interpolation": "bilinear", "scale": [1, 1, 1], "offset": [0, 0, 0]}


def encode(image: Image.Image, format: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, format=format, **options)
    return file.getvalue()


def gradient(width: int, height: int) -> Image.Image:
    rows = np.linspace(0, 255, height)[:, None, None]
    columns = np.linspace(0, 255, width)[None, :, None]
    pixels = np.concatenate(np.broadcast_arrays(rows, columns, (rows + columns) / 2), axis=2)
    return Image.fromarray(pixels.astype(np.uint8))


@pytest.mark.parametrize("format", ["PNG", "BMP", "WEBP"])
def test_lossless_formats_keep_every_pixel(format: str) -> None:
    image = gradient(32, 32)
    options = {"lossless": True, "exact": True} if format == "WEBP" else {}
    np.testing.assert_array_equal(load_image(encode(image, format, **options), SQUARE), np.asarray(image))


def test_jpeg_is_close() -> None:
    image = gradient(32, 32)
    loaded = load_image(encode(image, "JPEG", quality=95), SQUARE)
    assert np.abs(loaded.astype(int) - np.asarray(image)).mean() < 3


def test_a_path_is_read(tmp_path: Path) -> None:
    (tmp_path / "image.png").write_bytes(encode(gradient(32, 32), "PNG"))
    assert load_image(tmp_path / "image.png", SQUARE).shape == (32, 32, 3)


@pytest.mark.parametrize("format", ["GIF", "TIFF", "PPM", "ICO"])
def test_other_formats_are_refused(format: str) -> None:
    with pytest.raises(MediaTypeError, match="expected a JPEG, PNG, WEBP, BMP image"):
        load_image(encode(gradient(32, 32), format), SQUARE)


@pytest.mark.parametrize(
    "data", [b"", b"x", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"BM" + bytes(60), b"RIFF\0\0\0\0WEBPVP8 "]
)
def test_what_is_no_image_is_refused(data: bytes) -> None:
    with pytest.raises((ImageError, MediaTypeError)):
        load_image(data, SQUARE)


@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP", "BMP"])
def test_a_truncated_image_is_refused(format: str) -> None:
    data = encode(gradient(64, 64), format)
    with pytest.raises(ImageError):
        load_image(data[: len(data) // 2], SQUARE)


def png_header(width: int, height: int) -> bytes:
    chunk = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))


def test_too_many_pixels_are_refused_before_decoding() -> None:
    body = struct.pack(">I", 0) + b"IDAT" + struct.pack(">I", zlib.crc32(b"IDAT"))
    with pytest.raises(TooLargeError, match="5000x5000"):
        load_image(png_header(5_000, 5_000) + body, SQUARE)
    with pytest.raises(TooLargeError):
        load_image(png_header(60_000, 60_000) + body, SQUARE)


def test_a_long_thin_image_does_not_explode_when_resized() -> None:
    data = encode(Image.new("RGB", (200_000, 1)), "PNG")
    with pytest.raises(TooLargeError, match="long and thin"):
        load_image(data, {"size": [224, 224], "resize": 256})


def test_the_shorter_side_is_resized_and_the_centre_cropped() -> None:
    image = gradient(100, 60)
    loaded = load_image(encode(image, "PNG"), {"size": [24, 28], "resize": 30, "interpolation": "bicubic"})
    resized = np.asarray(image.resize((50, 30), Image.Resampling.BICUBIC))
    np.testing.assert_array_equal(loaded, resized[3:27, 11:39])


def test_both_sides_are_resized_straight_without_resize() -> None:
    image = gradient(100, 60)
    expected = np.asarray(image.resize((32, 32), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(load_image(encode(image, "PNG"), SQUARE), expected)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_exif_orientation_is_undone(orientation: int) -> None:
    upright = gradient(32, 32)
    undo = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}
    stored = upright.transpose(Image.Transpose(undo[orientation])) if orientation in undo else upright
    exif = Image.Exif()
    exif[0x0112] = orientation
    loaded = load_image(encode(stored, "PNG", exif=exif), SQUARE)
    np.testing.assert_array_equal(loaded, np.asarray(upright))


def test_cmyk_becomes_rgb() -> None:
    loaded = load_image(encode(Image.new("CMYK", (32, 32), (0, 255, 255, 0)), "JPEG", quality=95), SQUARE)
    assert loaded[..., 0].min() > 240
    assert loaded[..., 1:].max() < 15


def test_sixteen_bits_keep_the_high_byte() -> None:
    values = np.linspace(0, 65_535, 32 * 32).astype(np.uint16).reshape(32, 32)
    loaded = load_image(encode(Image.fromarray(values), "PNG"), SQUARE)
    np.testing.assert_array_equal(loaded[..., 0], values >> 8)
    np.testing.assert_array_equal(loaded[..., 0], loaded[..., 2])


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparent_pixels_are_composited_onto_white(mode: str) -> None:
    image = Image.new("RGBA", (32, 32), (0, 0, 0, 0))
    image.paste((0, 0, 0, 255), (0, 0, 16, 32))
    options = {}
    if mode == "P":
        palette = Image.new("P", (32, 32), 1)
        palette.putpalette([0, 0, 0, 10, 20, 30])
        palette.paste(0, (0, 0, 16, 32))
        image, options = palette, {"transparency": 1}
    elif mode == "LA":
        image = image.convert("LA")
    loaded = load_image(encode(image, "PNG", **options), SQUARE)
    assert (loaded[:, :16] == 0).all()
    assert (loaded[:, 16:] == 255).all()


@pytest.mark.parametrize("mode", ["1", "L", "P"])
def test_modes_with_few_colours(mode: str) -> None:
    loaded = load_image(encode(gradient(32, 32).convert(mode), "PNG"), SQUARE)
    expected = np.asarray(gradient(32, 32).convert(mode).convert("RGB"))
    np.testing.assert_array_equal(loaded, expected)


@pytest.mark.parametrize("format", ["PNG", "WEBP"])
def test_the_first_frame_of_an_animation_counts(format: str) -> None:
    frames = [Image.new("RGB", (32, 32), (255 * (i == 0), 0, 100 * i)) for i in range(3)]
    data = encode(frames[0], format, save_all=True, append_images=frames[1:], duration=40, **LOSSLESS.get(format, {}))
    assert len(list(ImageSequence.Iterator(Image.open(io.BytesIO(data))))) == 3
    assert (load_image(data, SQUARE) == (255, 0, 0)).all()


LOSSLESS: dict[str, dict[str, Any]] = {"WEBP": {"lossless": True}}


def test_one_channel_gives_grey() -> None:
    loaded = load_image(encode(gradient(32, 32), "PNG"), {"size": [32, 32], "scale": [1]})
    np.testing.assert_array_equal(loaded[..., 0], np.asarray(gradient(32, 32).convert("L")))


def test_decoding_stops_when_the_time_is_used_up() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (256, 256, 3), dtype=np.uint8)
    data = encode(Image.fromarray(noise), "JPEG", progressive=True)
    image = open_image(data, ImageLimits())
    source = image.fp  # type: ignore[attr-defined]
    assert isinstance(source, TimedFile)
    source.expires = 0.0
    with pytest.raises(ImageError, match="takes longer than"):
        prepare(image, Preprocessing.of(SQUARE), ImageLimits())


@pytest.mark.parametrize(
    "preprocessing",
    [
        {},
        {"size": [0, 32]},
        {"size": "large"},
        {"size": [32, 32], "scale": [1, 1]},
        {"size": [32, 32], "resize": 16},
        {"size": [32, 32], "interpolation": "magic"},
    ],
)
def test_preprocessing_that_makes_no_sense_is_refused(preprocessing: dict[str, Any]) -> None:
    with pytest.raises(ServeError, match="preprocessing"):
        Preprocessing.of(preprocessing)


def test_the_decoder_needs_neither_the_web_framework_nor_torch() -> None:
    code = "import sys, bitedge.serve.inference.preprocessing; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not {"fastapi", "starlette", "torch", "tensorflow"} & set(loaded)
