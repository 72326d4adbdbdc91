"""Colour and geometry of uint8 batches `[N, H, W, 3]`, one strength per image: the operations of RandAugment.

Each is a pure function, and means what PIL's function of the same purpose means for a single image; geometry takes
the nearest pixel and fills with black.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

BatchOp: TypeAlias = Callable[[Tensor, Tensor], Tensor]


def blend(base: Tensor, images: Tensor, factor: Tensor) -> Tensor:
    """Go from a base image (factor 0) to the image (factor 1) and beyond; cut off at 0 and 255, as PIL does."""
    start = base.float()
    mixed = start + factor.view(-1, 1, 1, 1) * (images.float() - start)
    return mixed.clamp_(0, 255).to(torch.uint8)


def gray(images: Tensor) -> Tensor:
    """The luma of each pixel, `[N, H, W, 1]`, by ITU-R 601 in PIL's integers."""
    weights = torch.tensor([19595, 38470, 7471], dtype=torch.int32, device=images.device)
    return ((images.int() * weights).sum(-1, keepdim=True, dtype=torch.int32) + 0x8000 >> 16).to(torch.uint8)


def brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Darken towards black or lighten."""
    return blend(torch.zeros_like(images), images, factor)


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Move towards the mean luma of the image, or away from it."""
    mean = gray(images).float().mean((1, 2, 3), keepdim=True).add_(0.5).floor_()
    return blend(mean, images, factor)


def colour(images: Tensor, factor: Tensor) -> Tensor:
    """Move towards the gray image, or away from it."""
    return blend(gray(images), images, factor)


def sharpness(images: Tensor, factor: Tensor) -> Tensor:
    """Move towards an image smoothed by a 3x3 kernel, or away from it; the border stays."""
    kernel = torch.ones(3, 1, 3, 3, device=images.device)
    kernel[:, :, 1, 1] = 5
    inner = F.conv2d(images.permute(0, 3, 1, 2).float(), kernel / 13, groups=3)
    smooth = images.clone()
    smooth[:, 1:-1, 1:-1] = inner.add_(0.5).clamp_(0, 255).to(torch.uint8).permute(0, 2, 3, 1)
    return blend(smooth, images, factor)


def posterize(images: Tensor, bits: Tensor) -> Tensor:
    """Keep the highest `bits` of each byte."""
    drop = (8 - bits.round()).to(torch.int32).view(-1, 1, 1, 1)
    return ((images.int() >> drop) << drop).to(torch.uint8)


def solarize(images: Tensor, threshold: Tensor) -> Tensor:
    """Invert the bytes from a threshold on."""
    return torch.where(images.float() >= threshold.view(-1, 1, 1, 1), 255 - images, images)


def autocontrast(images: Tensor, _: Tensor) -> Tensor:
    """Stretch each channel of each image to the full range; a channel of one value stays."""
    low = images.float().amin((1, 2), keepdim=True)
    high = images.float().amax((1, 2), keepdim=True)
    scale = 255 / (high - low)
    stretched = (images.float() * scale - low * scale).clamp_(0, 255).to(torch.uint8)
    return torch.where(high > low, stretched, images)


def equalize(images: Tensor, _: Tensor) -> Tensor:
    """Make the histogram of each channel of each image flat."""
    count, height, width, channels = images.shape
    planes = images.permute(0, 3, 1, 2).reshape(count * channels, height * width).long()
    histogram = torch.zeros(count * channels, 256, dtype=torch.int64, device=images.device)
    histogram.scatter_add_(1, planes, torch.ones_like(planes))
    last = histogram.gather(1, planes.amax(1, keepdim=True))
    step = (height * width - last) // 255
    before = histogram.cumsum(1) - histogram
    table = ((step // 2 + before) // step.clamp(min=1)).clamp_(max=255)
    equal = torch.where(step > 0, table.gather(1, planes), planes).to(torch.uint8)
    return equal.view(count, channels, height, width).permute(0, 2, 3, 1).contiguous()


def affine(images: Tensor, matrix: Tensor) -> Tensor:
    """Read the pixel at `matrix @ (x, y, 1)` for each pixel (x, y), all at pixel centres; `matrix` is `[N, 2, 3]`."""
    count, height, width, channels = images.shape
    y, x = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")
    here = torch.stack([x.flatten(), y.flatten(), torch.ones(height * width)]).to(images.device)
    column, row = (matrix.float() @ here).floor_().long().unbind(1)
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    source = row.clamp(0, height - 1) * width + column.clamp(0, width - 1)
    pixels = images.reshape(count, height * width, channels)
    taken = pixels.gather(1, source.unsqueeze(-1).expand(-1, -1, channels))
    return (taken * inside.unsqueeze(-1)).view_as(images)


def _matrices(count: int, device: torch.device) -> Tensor:
    return torch.eye(2, 3, device=device).repeat(count, 1, 1)


def shear_x(images: Tensor, amount: Tensor) -> Tensor:
    """Shift each row by a share of its height above the bottom."""
    matrix = _matrices(len(images), images.device)
    matrix[:, 0, 1] = amount
    return affine(images, matrix)


def shear_y(images: Tensor, amount: Tensor) -> Tensor:
    """Shift each column by a share of its distance from the left."""
    matrix = _matrices(len(images), images.device)
    matrix[:, 1, 0] = amount
    return affine(images, matrix)


def translate_x(images: Tensor, share: Tensor) -> Tensor:
    """Shift to the left by a share of the width."""
    matrix = _matrices(len(images), images.device)
    matrix[:, 0, 2] = share * images.shape[2]
    return affine(images, matrix)


def translate_y(images: Tensor, share: Tensor) -> Tensor:
    """Shift up by a share of the height."""
    matrix = _matrices(len(images), images.device)
    matrix[:, 1, 2] = share * images.shape[1]
    return affine(images, matrix)


def rotate(images: Tensor, degrees: Tensor) -> Tensor:
    """Turn counter-clockwise about the centre."""
    angle = -torch.deg2rad(degrees.float())
    cos, sin = torch.cos(angle), torch.sin(angle)
    centre_x, centre_y = images.shape[2] / 2, images.shape[1] / 2
    matrix = _matrices(len(images), images.device)
    matrix[:, 0, 0], matrix[:, 0, 1] = cos, sin
    matrix[:, 1, 0], matrix[:, 1, 1] = -sin, cos
    matrix[:, 0, 2] = centre_x - cos * centre_x - sin * centre_y
    matrix[:, 1, 2] = centre_y + sin * centre_x - cos * centre_y
    return affine(images, matrix)
