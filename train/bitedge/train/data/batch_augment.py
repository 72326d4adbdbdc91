"""Random changes of whole uint8 batches: RandAugment and cutout of each image, mixup and CutMix of two.

Each is a pure function of the batch and of a numpy generator, so that a batch follows from seed, epoch and step alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bitedge.train.data import ops
from bitedge.train.errors import TrainError

LEVELS = 30
"""The strongest magnitude of RandAugment's scale."""


def _around(low: float, high: float) -> Callable[[float], float]:
    return lambda level: low + (high - low) * level


@dataclass(frozen=True)
class Operation:
    """One operation of RandAugment: what it does, its argument at a level between 0 and 1, and whether to mirror it."""

    apply: ops.BatchOp
    argument: Callable[[float], float]
    centre: float | None = None
    """The argument that changes nothing, for an operation that goes either way; None for one direction."""


OPERATIONS: tuple[Operation, ...] = (
    Operation(lambda images, _: images, _around(0, 0)),
    Operation(ops.autocontrast, _around(0, 0)),
    Operation(ops.equalize, _around(0, 0)),
    Operation(ops.rotate, _around(0, 30), 0.0),
    Operation(ops.solarize, _around(256, 0)),
    Operation(ops.colour, _around(1, 1.9), 1.0),
    Operation(ops.posterize, _around(8, 4)),
    Operation(ops.contrast, _around(1, 1.9), 1.0),
    Operation(ops.brightness, _around(1, 1.9), 1.0),
    Operation(ops.sharpness, _around(1, 1.9), 1.0),
    Operation(ops.shear_x, _around(0, 0.3), 0.0),
    Operation(ops.shear_y, _around(0, 0.3), 0.0),
    Operation(ops.translate_x, _around(0, 0.45), 0.0),
    Operation(ops.translate_y, _around(0, 0.45), 0.0),
)


def rand_augment(images: Tensor, rng: np.random.Generator, *, count: int, magnitude: float) -> Tensor:
    """Apply `count` random operations to each image, all at one magnitude of 0 to 30, in a random direction.

    Cubuk et al., RandAugment, https://arxiv.org/abs/1909.13719.
    """
    if count < 0 or not 0 <= magnitude <= LEVELS:
        raise TrainError(f"RandAugment takes count >= 0 and a magnitude of 0 to {LEVELS}, got {count} and {magnitude}")
    for _ in range(count):
        chosen = rng.integers(len(OPERATIONS), size=len(images))
        signs = rng.integers(2, size=len(images)) * 2 - 1
        images = images.clone()
        for index in np.unique(chosen):
            operation = OPERATIONS[index]
            rows = torch.tensor(np.flatnonzero(chosen == index), device=images.device)
            value = operation.argument(magnitude / LEVELS)
            strength = torch.full((len(rows),), value, device=images.device)
            if operation.centre is not None:
                sign = torch.tensor(signs[chosen == index], device=images.device)
                strength = operation.centre + sign * (strength - operation.centre)
            images[rows] = operation.apply(images[rows], strength)
    return images


def cutout(images: Tensor, rng: np.random.Generator, *, size: int) -> Tensor:
    """Blacken a square of this size around a random pixel of each image; it may hang over the border.

    DeVries and Taylor, Improved Regularization of Convolutional Neural Networks with Cutout,
    https://arxiv.org/abs/1708.04552.
    """
    if size < 1:
        raise TrainError(f"cutout takes a size of at least 1 pixel, got {size}")
    hidden = [_span(rng.integers(length, size=len(images)), size, length, images) for length in images.shape[1:3]]
    square = hidden[0][:, :, None] & hidden[1][:, None, :]
    return images.masked_fill(square.unsqueeze(-1), 0)


def _span(centres: NDArray[np.int64], size: int, length: int, images: Tensor) -> Tensor:
    """Which places of one axis lie in a window of `size` around the centre, for each image."""
    first = torch.tensor(centres, device=images.device)[:, None] - size // 2
    places = torch.arange(length, device=images.device)
    return (places >= first) & (places < first + size)


@dataclass(frozen=True)
class Mixed:
    """A batch of mixed images: image k is `share` of itself and the rest of image `partner[k]`."""

    images: Tensor
    partner: Tensor
    share: float

    def targets(self, labels: Tensor, classes: int) -> Tensor:
        """The labels as distributions `[N, classes]`, mixed as the images are."""
        own = torch.nn.functional.one_hot(labels, classes).float()
        return self.share * own + (1 - self.share) * own[self.partner]


def mixup(images: Tensor, rng: np.random.Generator, *, alpha: float) -> Mixed:
    """Average each image with another of the batch; the share is drawn from Beta(alpha, alpha), once per batch.

    Zhang et al., mixup: Beyond Empirical Risk Minimization, https://arxiv.org/abs/1710.09412. The result is rounded to
    uint8, since the network of a device reads bytes.
    """
    share, partner = _draw(images, rng, alpha)
    mixed = share * images.float() + (1 - share) * images[partner].float()
    return Mixed(mixed.round_().to(torch.uint8), partner, share)


def cutmix(images: Tensor, rng: np.random.Generator, *, alpha: float) -> Mixed:
    """Paste a random rectangle of another image of the batch, the same one for all; the share is that of the area.

    Yun et al., CutMix, https://arxiv.org/abs/1905.04899: the rectangle has the image's proportions, its area is 1 minus
    a draw from Beta(alpha, alpha), and what hangs over the border is cut off.
    """
    wanted, partner = _draw(images, rng, alpha)
    height, width = images.shape[1:3]
    side = float(np.sqrt(1 - wanted))
    top, bottom = _edges(int(rng.integers(height)), int(height * side), height)
    left, right = _edges(int(rng.integers(width)), int(width * side), width)
    mixed = images.clone()
    mixed[:, top:bottom, left:right] = images[partner][:, top:bottom, left:right]
    return Mixed(mixed, partner, 1 - (bottom - top) * (right - left) / (height * width))


def _draw(images: Tensor, rng: np.random.Generator, alpha: float) -> tuple[float, Tensor]:
    """The share of the first image, and the order of the second ones."""
    if not alpha > 0:
        raise TrainError(f"mixup and CutMix take an alpha above 0, got {alpha}")
    share = float(rng.beta(alpha, alpha))
    return share, torch.tensor(rng.permutation(len(images)), device=images.device)


def _edges(centre: int, size: int, length: int) -> tuple[int, int]:
    """Both ends of a window around a centre, cut off at the border."""
    return max(0, centre - size // 2), min(length, centre + size // 2)


@dataclass(frozen=True)
class BatchAugmentation:
    """What to do to each batch, in this order; zeros leave it alone.

    `rand_augment` operations of a `magnitude`, a `cutout` square of so many pixels, then `mixup` or `cutmix` with these
    alphas, one or the other with equal chances where both are given.
    """

    rand_augment: int = 0
    magnitude: float = 9.0
    cutout: int = 0
    mixup: float = 0.0
    cutmix: float = 0.0

    def __call__(self, images: Tensor, labels: Tensor, classes: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Return the images, still uint8, and labels: as they were, or shares `[N, classes]` where images are mixed."""
        if self.rand_augment:
            images = rand_augment(images, rng, count=self.rand_augment, magnitude=self.magnitude)
        if self.cutout:
            images = cutout(images, rng, size=self.cutout)
        if not self.mixup and not self.cutmix:
            return images, labels
        blends = self.mixup > 0 and (not self.cutmix or rng.random() < 0.5)
        mixed = mixup(images, rng, alpha=self.mixup) if blends else cutmix(images, rng, alpha=self.cutmix)
        return mixed.images, mixed.targets(labels, classes)
