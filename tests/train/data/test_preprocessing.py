"""Normalization and geometry; the service must see the same pixels as the trainer."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from bitedge.serve.inference.preprocessing import load_image
from bitedge.train.data.preprocessing import Normalizer, fit_image, make_preprocessing, normalization_terms
from bitedge.train.errors import TrainError

LEVELS = torch.arange(256, dtype=torch.uint8).reshape(1, 256, 1, 1).expand(1, 256, 1, 3)


def normalized(normalization: Any) -> torch.Tensor:
    return Normalizer(make_preprocessing((256, 1), normalization=normalization), torch.device("cpu"))(LEVELS)


def test_dyadic_grid_is_exact() -> None:
    expected = (2 * torch.arange(256, dtype=torch.float64) - 255) / 256
    out = normalized("dyadic")
    assert out.dtype == torch.float32
    assert torch.equal(out[0, 0, :, 0].double(), expected)


def test_paper_grid() -> None:
    torch.testing.assert_close(normalized("paper")[0, 1, :, 0], torch.arange(256) / 127.5 - 1)


def test_imagenet_and_given_moments() -> None:
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    expected = (LEVELS[0, :, 0].float() / 255 - mean) / std
    for choice in ("imagenet", {"mean": mean.tolist(), "std": std.tolist()}):
        torch.testing.assert_close(normalized(choice)[0, :, :, 0].T, expected, rtol=1e-5, atol=1e-5)


def test_result_is_the_documented_float32_arithmetic() -> None:
    scale, offset = (np.array(term, np.float32) for term in normalization_terms("imagenet"))
    expected = LEVELS.numpy().astype(np.float32) * scale + offset
    assert np.array_equal(normalized("imagenet").permute(0, 2, 3, 1).numpy(), expected)


def encoded(mode: str, size: tuple[int, int], kind: str, **options: Any) -> bytes:
    rng = np.random.default_rng(5)
    bands = len(Image.new(mode, (1, 1)).getbands())
    shape = (size[1], size[0], bands) if bands > 1 else (size[1], size[0])
    image = Image.fromarray(rng.integers(256, size=shape, dtype=np.uint8), mode if mode == "CMYK" else None)
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def turned() -> dict[str, Any]:
    exif = Image.Exif()
    exif[0x0112] = 6
    return {"exif": exif}


FILES = [
    encoded("RGB", (37, 53), "PNG"),
    encoded("RGB", (301, 200), "JPEG"),
    encoded("RGB", (64, 47), "JPEG", **turned()),
    encoded("L", (90, 40), "JPEG"),
    encoded("RGBA", (33, 34), "PNG"),
    encoded("LA", (50, 41), "PNG"),
]


@pytest.mark.parametrize("file", range(len(FILES)))
@pytest.mark.parametrize(
    ("size", "resize", "interpolation"),
    [((32, 32), None, "bilinear"), ((28, 24), 33, "bicubic"), ((32, 32), 32, "bilinear"), ((31, 32), 40, "nearest")],
)
def test_service_and_training_see_the_same_pixels(
    file: int, size: tuple[int, int], resize: int | None, interpolation: str
) -> None:
    preprocessing = make_preprocessing(size, resize=resize, interpolation=interpolation)
    with Image.open(io.BytesIO(FILES[file])) as image:
        ours = np.asarray(fit_image(image, preprocessing))
    assert ours.shape == (*size, 3)
    assert np.array_equal(ours, load_image(FILES[file], dict(preprocessing)))


def test_image_of_the_right_size_is_untouched() -> None:
    pixels = np.random.default_rng(0).integers(256, size=(32, 32, 3), dtype=np.uint8)
    assert np.array_equal(np.asarray(fit_image(Image.fromarray(pixels), make_preprocessing((32, 32)))), pixels)


def test_centre_crop_by_hand() -> None:
    pixels = np.random.default_rng(0).integers(256, size=(10, 16, 3), dtype=np.uint8)
    fitted = np.asarray(fit_image(Image.fromarray(pixels), make_preprocessing((6, 8), resize=10)))
    assert np.array_equal(fitted, pixels[2:8, 4:12])


def test_sixteen_bits_are_refused() -> None:
    with pytest.raises(TrainError, match="expected 8 bits per channel"):
        fit_image(Image.fromarray(np.zeros((4, 4), np.uint16)), make_preprocessing((4, 4)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"normalization": "none"}, "normalization must be"),
        ({"normalization": {"mean": [0, 0, 0]}}, "normalization must be"),
        ({"normalization": {"mean": [0, 0, 0], "std": [1, 0, 1]}}, "std positive"),
        ({"interpolation": "area"}, "interpolation must be one of nearest, bilinear, bicubic"),
        ({"resize": 16}, "size must be positive and at most resize"),
    ],
)
def test_bad_preprocessing_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TrainError, match=message):
        make_preprocessing((32, 32), **options)
