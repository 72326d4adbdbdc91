"""Operations on uint8 batches against PIL, image by image, and against numpy transcriptions of the papers."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from bitedge.train.data import ops
from bitedge.train.data.arrays import ArrayDataset, CropFlip
from bitedge.train.data.batch_augment import OPERATIONS, BatchAugmentation, cutmix, cutout, mixup, rand_augment
from bitedge.train.data.preprocessing import make_preprocessing
from bitedge.train.engine.build import build_dataset, prepare_dataset
from bitedge.train.engine.progress import Silent
from bitedge.train.engine.trainer import fit
from bitedge.train.errors import TrainError
from bitedge.train.recipes.recipe import load_recipe

SIZE = 32


def photos(count: int = 6, seed: int = 0) -> npt.NDArray[np.uint8]:
    """Smooth images with noise, a gray one and one of a single colour among them."""
    random = np.random.default_rng(seed)
    coarse = random.integers(0, 256, size=(count, 6, 6, 3), dtype=np.uint8)
    images = np.stack(
        [np.asarray(Image.fromarray(image).resize((SIZE, SIZE), Image.Resampling.BICUBIC)) for image in coarse]
    )
    noisy = images.astype(int) // 2 + 40 + random.integers(-9, 10, size=images.shape)
    images = np.clip(noisy, 0, 255).astype(np.uint8)
    images[-2] = images[-2, :, :, :1]
    images[-1] = (10, 200, 90)
    return np.asarray(images, dtype=np.uint8)


def enhanced(kind: Any) -> Callable[[Image.Image, float], Image.Image]:
    return lambda image, value: kind(image).enhance(value)


def turned(image: Image.Image, matrix: tuple[float, ...]) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.NEAREST)


PIL: dict[str, tuple[ops.BatchOp, Callable[[Image.Image, float], Image.Image], list[float]]] = {
    "brightness": (ops.brightness, enhanced(ImageEnhance.Brightness), [0.1, 0.7, 1.0, 1.9]),
    "contrast": (ops.contrast, enhanced(ImageEnhance.Contrast), [0.1, 0.7, 1.0, 1.9]),
    "colour": (ops.colour, enhanced(ImageEnhance.Color), [0.1, 0.7, 1.0, 1.9]),
    "sharpness": (ops.sharpness, enhanced(ImageEnhance.Sharpness), [0.1, 0.7, 1.0, 1.9]),
    "posterize": (ops.posterize, lambda image, bits: ImageOps.posterize(image, int(bits)), [4, 6, 8]),
    "solarize": (ops.solarize, lambda image, at: ImageOps.solarize(image, int(at)), [0, 100, 256]),
    "autocontrast": (ops.autocontrast, lambda image, _: ImageOps.autocontrast(image), [0]),
    "equalize": (ops.equalize, lambda image, _: ImageOps.equalize(image), [0]),
    "shear_x": (ops.shear_x, lambda image, by: turned(image, (1, by, 0, 0, 1, 0)), [-0.3, 0.21]),
    "shear_y": (ops.shear_y, lambda image, by: turned(image, (1, 0, 0, by, 1, 0)), [-0.3, 0.21]),
    "translate_x": (ops.translate_x, lambda image, by: turned(image, (1, 0, by * SIZE, 0, 1, 0)), [-0.3, 0.25]),
    "translate_y": (ops.translate_y, lambda image, by: turned(image, (1, 0, 0, 0, 1, by * SIZE)), [-0.3, 0.25]),
    "rotate": (ops.rotate, lambda image, by: image.rotate(by, Image.Resampling.NEAREST), [-30, 10, 90]),
}


@pytest.mark.parametrize("name", PIL)
def test_equals_pil(name: str) -> None:
    operation, reference, values = PIL[name]
    images = photos()
    for value in values:
        ours = operation(torch.from_numpy(images), torch.full((len(images),), float(value))).numpy()
        theirs = np.stack([np.asarray(reference(Image.fromarray(image), value)) for image in images])
        assert ours.shape == theirs.shape
        assert ours.dtype == np.uint8
        near = np.abs(ours.astype(int) - theirs.astype(int)) <= 1  # PIL keeps some factors in fixed point
        geometric = name.startswith(("shear", "translate", "rotate"))
        assert near.mean() >= (0.99 if geometric else 1.0), f"{name} {value}"


def test_each_image_has_its_own_strength() -> None:
    images = torch.from_numpy(photos())
    factors = torch.linspace(0.2, 1.8, len(images))
    together = ops.contrast(images, factors)
    for index in range(len(images)):
        assert torch.equal(together[index], ops.contrast(images[index : index + 1], factors[index : index + 1])[0])


def generator(seed: int = 3) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_rand_augment_follows_the_generator() -> None:
    images = torch.from_numpy(photos(40))
    first = rand_augment(images, generator(), count=2, magnitude=9)
    assert torch.equal(first, rand_augment(images, generator(), count=2, magnitude=9))
    assert not torch.equal(first, rand_augment(images, generator(4), count=2, magnitude=9))
    assert first.dtype == torch.uint8
    changed = (first != images).flatten(1).any(1).float().mean()
    assert changed > 0.7
    assert torch.equal(rand_augment(images, generator(), count=0, magnitude=9), images)


def test_rand_augment_transcribed() -> None:
    images = torch.from_numpy(photos(30))
    random = generator()
    expected = images.clone()
    chosen, signs = random.integers(len(OPERATIONS), size=30), random.integers(2, size=30) * 2 - 1
    for index in range(30):
        operation = OPERATIONS[chosen[index]]
        value = operation.argument(12 / 30)
        if operation.centre is not None and signs[index] < 0:
            value = 2 * operation.centre - value
        expected[index] = operation.apply(images[index : index + 1], torch.tensor([value]))[0]
    assert torch.equal(rand_augment(images, generator(), count=1, magnitude=12), expected)


@pytest.mark.parametrize("size", [1, 8, 40])
def test_cutout_transcribed(size: int) -> None:
    images = torch.full((5, SIZE, SIZE, 3), 7, dtype=torch.uint8)
    random = generator()
    rows, columns = random.integers(SIZE, size=5), random.integers(SIZE, size=5)
    ours = cutout(images, generator(), size=size)
    for index in range(5):
        for y in range(SIZE):
            for x in range(SIZE):
                hidden = all(
                    0 <= at - (centre - size // 2) < size for at, centre in ((y, rows[index]), (x, columns[index]))
                )
                assert bool((ours[index, y, x] == 0).all()) == hidden


def test_mixup_transcribed() -> None:
    images, labels = photos(8), torch.tensor([0, 1, 2, 3, 0, 1, 2, 3])
    random = generator()
    share, partner = random.beta(0.4, 0.4), random.permutation(8)
    mixed = mixup(torch.from_numpy(images), generator(), alpha=0.4)
    for index in range(8):
        value = np.float32(share) * images[index].astype(np.float32) + np.float32(1 - share) * images[partner[index]]
        assert np.abs(mixed.images[index].numpy() - value).max() <= 0.501
    targets = mixed.targets(labels, 4)
    for index in range(8):
        expected = np.zeros(4)
        expected[labels[index]] += share
        expected[labels[partner[index]]] += 1 - share
        np.testing.assert_allclose(targets[index].numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_cutmix_transcribed(seed: int) -> None:
    images = photos(5)
    random = generator(seed)
    wanted, partner = random.beta(1.0, 1.0), random.permutation(5)
    side = int(SIZE * math.sqrt(1 - wanted))
    row, column = int(random.integers(SIZE)), int(random.integers(SIZE))
    expected, pasted = images.copy(), 0
    for y in range(SIZE):
        for x in range(SIZE):
            if row - side // 2 <= y < row + side // 2 and column - side // 2 <= x < column + side // 2:
                expected[:, y, x] = images[partner][:, y, x]
                pasted += 1
    mixed = cutmix(torch.from_numpy(images), generator(seed), alpha=1.0)
    np.testing.assert_array_equal(mixed.images.numpy(), expected)
    assert mixed.share == pytest.approx(1 - pasted / SIZE**2)


def test_inputs_are_left_alone() -> None:
    images = torch.from_numpy(photos())
    before = images.clone()
    calls: list[Callable[[Tensor, np.random.Generator], Any]] = [
        lambda x, rng: rand_augment(x, rng, count=2, magnitude=20),
        lambda x, rng: cutout(x, rng, size=9),
        lambda x, rng: mixup(x, rng, alpha=1.0),
        lambda x, rng: cutmix(x, rng, alpha=1.0),
    ]
    for call in calls:
        call(images, generator())
        assert torch.equal(images, before)


def test_impossible_values_are_refused() -> None:
    images = torch.from_numpy(photos())
    with pytest.raises(TrainError, match="magnitude of 0 to 30, got 2 and 31"):
        rand_augment(images, generator(), count=2, magnitude=31)
    with pytest.raises(TrainError, match="size of at least 1 pixel, got 0"):
        cutout(images, generator(), size=0)
    with pytest.raises(TrainError, match="alpha above 0, got 0"):
        mixup(images, generator(), alpha=0.0)


def small_set(augmentation: CropFlip) -> ArrayDataset:
    images, labels = photos(24), np.arange(24, dtype=np.int64) % 3
    splits = {"train": (images, labels), "validation": (images[:0], labels[:0]), "test": (images, labels)}
    preprocessing = make_preprocessing((SIZE, SIZE))
    return ArrayDataset("photos", ["a", "b", "c"], preprocessing, splits, augmentation=augmentation)


ALL = BatchAugmentation(rand_augment=1, magnitude=9, cutout=8, mixup=0.4, cutmix=1.0)


def test_loader_mixes_images_and_labels() -> None:
    batches = list(small_set(CropFlip(2, batch=ALL)).loader("train", batch_size=8, augment=True).epoch(0))
    for images, labels in batches:
        assert images.shape == (8, 3, SIZE, SIZE)
        assert labels.shape == (8, 3)
        torch.testing.assert_close(labels.sum(1), torch.ones(8))
    assert any(bool(((labels > 0) & (labels < 1)).any()) for _, labels in batches)


def test_loader_resumes_inside_an_epoch() -> None:
    whole = list(small_set(CropFlip(2, batch=ALL)).loader("train", batch_size=8, augment=True).epoch(3))
    rest = list(small_set(CropFlip(2, batch=ALL)).loader("train", batch_size=8, augment=True).epoch(3, start=1))
    assert len(rest) == 2
    for (images, labels), (again, theirs) in zip(whole[1:], rest, strict=True):
        assert torch.equal(images, again)
        assert torch.equal(labels, theirs)


def test_evaluation_is_never_augmented() -> None:
    plain = list(small_set(CropFlip(0, flip=False)).loader("test", batch_size=24).epoch(0))
    other = list(small_set(CropFlip(2, border="reflect", batch=ALL)).loader("test", batch_size=24).epoch(0))
    assert torch.equal(plain[0][0], other[0][0])
    assert torch.equal(plain[0][1], other[0][1])


def test_reflected_border_has_no_black() -> None:
    images = np.full((4, SIZE, SIZE, 3), 200, dtype=np.uint8)
    labels = np.zeros(4, dtype=np.int64)
    splits = {"train": (images, labels), "validation": (images[:0], labels[:0]), "test": (images, labels)}
    for border, darkest in (("reflect", (2 * 200 - 255) / 256), ("black", -255 / 256)):
        augmentation = CropFlip(8, border=border)  # type: ignore[arg-type]
        dataset = ArrayDataset("flat", ["a"], make_preprocessing((SIZE, SIZE)), splits, augmentation=augmentation)
        ((batch, _),) = dataset.loader("train", batch_size=4, augment=True).epoch(0)
        assert float(batch.min()) == pytest.approx(darkest)


def test_recipe_sets_what_it_names() -> None:
    recipe = load_recipe("digits", ["data.mixup=0.4", "data.border=reflect", "data.shift=1"]).data
    dataset = build_dataset(recipe, None)
    assert isinstance(dataset, ArrayDataset)
    assert dataset.augmentation == CropFlip(1, dataset.augmentation.flip, "reflect", BatchAugmentation(mixup=0.4))
    own = small_set(CropFlip(2, batch=ALL))
    assert isinstance(prepared := prepare_dataset(own, load_recipe("digits").data), ArrayDataset)
    assert prepared.augmentation.batch == ALL, "a data set of one's own keeps its augmentation"


def test_a_run_learns_from_mixed_images(tmp_path: Path) -> None:
    overrides = ["epochs=1", "data.limit=300", "data.cutmix=1.0", "data.mixup=0.2", "data.rand_augment=1"]
    run = fit("digits", out=tmp_path / "run", overrides=overrides, progress=Silent())
    assert 0 < run.training["last"]["accuracy"] <= 1
