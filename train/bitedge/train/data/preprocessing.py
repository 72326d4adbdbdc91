"""Preprocessing as plain data: how an image becomes the uint8 map, and the map the network's input.

`docs/architecture.md` has the meaning: resize the shorter side to `resize` (or both sides straight to `size` when it is
null), crop the centre to `size`, then `u8 * scale + offset` in float32, per channel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias, TypedDict

import torch
from PIL import Image, ImageOps
from torch import Tensor

from bitedge.train.errors import TrainError

Normalization: TypeAlias = str | Mapping[str, Sequence[float]]

INTERPOLATIONS: dict[str, Image.Resampling] = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}

IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


class Preprocessing(TypedDict):
    """The dictionary that travels from the run folder to every exported file."""

    size: list[int]
    resize: int | None
    interpolation: str
    scale: list[float]
    offset: list[float]


def normalization_terms(normalization: Normalization) -> tuple[list[float], list[float]]:
    """Return scale and offset per channel for a named normalization, or for `{"mean": ..., "std": ...}` of RGB in 0..1.

    `"dyadic"` is `(2u - 255) / 256`: every value is a multiple of 1/256, so that sums with ±1 weights are exact in
    float32. `"paper"` is `u / 127.5 - 1`. `"imagenet"` subtracts ImageNet's mean and divides by its deviation.
    """
    if normalization == "dyadic":
        return [2 / 256] * 3, [-255 / 256] * 3
    if normalization == "paper":
        return [1 / 127.5] * 3, [-1.0] * 3
    moments: Mapping[str, Sequence[float]]
    if normalization == "imagenet":
        moments = IMAGENET
    elif isinstance(normalization, Mapping) and set(normalization) == {"mean", "std"}:
        moments = normalization
    else:
        raise TrainError(
            f"normalization must be 'dyadic', 'paper', 'imagenet' or a table with mean and std, got {normalization!r}"
        )
    mean, std = list(moments["mean"]), list(moments["std"])
    if len(mean) != 3 or len(std) != 3 or min(std) <= 0:
        raise TrainError(f"mean and std need three values each, std positive, got {mean} and {std}")
    return [1 / (255 * s) for s in std], [-m / s for m, s in zip(mean, std, strict=True)]


def make_preprocessing(
    size: tuple[int, int],
    *,
    resize: int | None = None,
    interpolation: str = "bilinear",
    normalization: Normalization = "dyadic",
) -> Preprocessing:
    """Return the dictionary for images of this size, checked."""
    if min(size) < 1 or (resize is not None and resize < max(size)):
        raise TrainError(f"size must be positive and at most resize, got size {size} and resize {resize}")
    if interpolation not in INTERPOLATIONS:
        raise TrainError(f"interpolation must be one of {', '.join(INTERPOLATIONS)}, got {interpolation!r}")
    scale, offset = normalization_terms(normalization)
    return {
        "size": list(size),
        "resize": resize,
        "interpolation": interpolation,
        "scale": scale,
        "offset": offset,
    }


def upright_rgb(image: Image.Image) -> Image.Image:
    """Decode to 8-bit RGB, turned as its EXIF tag says; transparency lies on white, as the service has it."""
    image = ImageOps.exif_transpose(image)
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        raise TrainError(f"expected 8 bits per channel, got an image of mode {image.mode}; convert it first")
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        straight = image.convert("RGBA")
        image = Image.new("RGBA", straight.size, (255, 255, 255, 255))
        image.alpha_composite(straight)
    return image.convert("RGB")


def fit_image(image: Image.Image, preprocessing: Preprocessing) -> Image.Image:
    """Return the image as RGB, resized and cropped to the network's size."""
    image = upright_rgb(image)
    height, width = preprocessing["size"]
    resample = INTERPOLATIONS[preprocessing["interpolation"]]
    shorter = preprocessing["resize"]
    if shorter is None:
        return image if image.size == (width, height) else image.resize((width, height), resample)
    scaled = (shorter * image.width // min(image.size), shorter * image.height // min(image.size))
    if scaled != image.size:
        image = image.resize(scaled, resample)
    left, top = round((scaled[0] - width) / 2), round((scaled[1] - height) / 2)
    return image.crop((left, top, left + width, top + height))


class Normalizer:
    """Turns a uint8 batch `[N, H, W, 3]` into the float32 input `[N, 3, H, W]`, on the device of the batch."""

    def __init__(self, preprocessing: Preprocessing, device: torch.device) -> None:
        self._scale = self._term(preprocessing["scale"], device)
        self._offset = self._term(preprocessing["offset"], device)

    @staticmethod
    def _term(values: list[float], device: torch.device) -> Tensor:
        # One number for all channels broadcasts over long rows instead of rows of three: several times quicker.
        shared = values[:1] if len(set(values)) == 1 else values
        return torch.tensor(shared, dtype=torch.float32, device=device)

    def __call__(self, images: Tensor) -> Tensor:
        """Return `images * scale + offset`, laid out channels last."""
        return images.to(torch.float32).mul_(self._scale).add_(self._offset).permute(0, 3, 1, 2)
