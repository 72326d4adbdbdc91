"""Images on the device: crops and flips against loops, purity, sharding."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bitedge.train.data import ArrayDataset, CropFlip
from bitedge.train.data.preprocessing import make_preprocessing
from bitedge.train.errors import TrainError

HEIGHT, WIDTH = 8, 6


def dataset(count: int = 60, flip: bool = True, pad: int = 2) -> ArrayDataset:
    rng = np.random.default_rng(0)
    images = rng.integers(1, 256, size=(count, HEIGHT, WIDTH, 3), dtype=np.uint8)
    images[:, 0, 0, 0] = np.arange(count)  # so that an unaugmented image can be recognised
    labels = np.arange(count, dtype=np.int64)
    empty = (images[:0], labels[:0])
    return ArrayDataset(
        "made",
        [str(i) for i in range(count)],
        make_preprocessing((HEIGHT, WIDTH)),
        {"train": (images, labels), "validation": empty, "test": (images[:7], labels[:7])},
        augmentation=CropFlip(pad=pad, flip=flip),
    )


def pixels(batch: torch.Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Undo the dyadic normalization."""
    levels = (batch * 256 + 255) / 2
    return levels.permute(0, 2, 3, 1).numpy().astype(np.int64)


def test_every_augmented_image_is_a_shifted_or_mirrored_one() -> None:
    data = dataset()
    images, _ = data.train
    padded = np.pad(images, ((0, 0), (2, 2), (2, 2), (0, 0)))
    seen = set()
    for epoch in range(3):
        for batch, labels in data.loader("train", batch_size=10, augment=True, seed=1).epoch(epoch):
            for image, label in zip(pixels(batch), labels.tolist(), strict=True):
                views = {
                    (top, left, flip): padded[label, top : top + HEIGHT, left : left + WIDTH][:, :: -1 if flip else 1]
                    for top in range(5)
                    for left in range(5)
                    for flip in (False, True)
                }
                matches = [view for view, expected in views.items() if np.array_equal(image, expected)]
                assert len(matches) == 1
                seen.add(matches[0])
    assert {view[0] for view in seen} == {view[1] for view in seen} == set(range(5))
    assert {view[2] for view in seen} == {False, True}


def test_without_flip_nothing_is_mirrored() -> None:
    data = dataset(flip=False, pad=0)
    for batch, labels in data.loader("train", batch_size=10, augment=True).epoch(0):
        assert np.array_equal(pixels(batch), data.train[0][labels.numpy()])


def test_batches_are_a_pure_function_of_seed_and_epoch() -> None:
    loader = dataset().loader("train", batch_size=10, augment=True, seed=5)
    whole = list(loader.epoch(3))
    assert len(whole) == len(loader) == 6
    again = list(dataset().loader("train", batch_size=10, augment=True, seed=5).epoch(3, start=2))
    for (images, labels), (other_images, other_labels) in zip(whole[2:], again, strict=True):
        assert torch.equal(images, other_images)
        assert torch.equal(labels, other_labels)
    assert not torch.equal(whole[0][1], next(loader.epoch(4))[1])


def test_two_processes_share_a_step_of_one() -> None:
    data = dataset()
    one = list(data.loader("train", batch_size=12, augment=True, seed=2).epoch(1))
    parts = [list(data.loader("train", batch_size=12, augment=True, seed=2, rank=r, world=2).epoch(1)) for r in (0, 1)]
    assert len(one) == len(parts[0]) == len(parts[1]) == 5
    for (images, labels), (first, first_labels), (second, second_labels) in zip(one, *parts, strict=True):
        assert torch.equal(images[0::2], first)
        assert torch.equal(images[1::2], second)
        assert torch.equal(labels[0::2], first_labels)
        assert torch.equal(labels[1::2], second_labels)


def test_evaluation_is_complete_in_order_and_unchanged() -> None:
    data = dataset()
    batches = list(data.loader("test", batch_size=3).epoch(0))
    assert [len(labels) for _, labels in batches] == [3, 3, 1]
    assert torch.cat([labels for _, labels in batches]).tolist() == list(range(7))
    assert np.array_equal(pixels(torch.cat([images for images, _ in batches])), data.test[0])


def test_types_and_layout() -> None:
    images, labels = next(dataset().loader("train", batch_size=4, augment=True).epoch(0))
    assert (images.dtype, labels.dtype) == (torch.float32, torch.int64)
    assert images.shape == (4, 3, HEIGHT, WIDTH)
    assert images.is_contiguous(memory_format=torch.channels_last)


def test_limit_spreads_over_the_split() -> None:
    images, labels = dataset().arrays("train", limit=6)
    assert labels.tolist() == [0, 10, 20, 30, 40, 50]
    assert images.shape == (6, HEIGHT, WIDTH, 3)
    assert len(dataset().arrays("test", limit=100)[1]) == 7


def test_bad_requests_are_refused() -> None:
    with pytest.raises(TrainError, match="split must be one of train, validation, test, got 'val'"):
        dataset().size("val")
    with pytest.raises(TrainError, match="the validation split of made is empty"):
        dataset().loader("validation", batch_size=4)
    with pytest.raises(TrainError, match="limit must be positive"):
        dataset().arrays("train", limit=0)


def test_alternating_flips_show_each_image_both_ways_in_two_epochs() -> None:
    images = np.zeros((40, 4, 4, 3), np.uint8)
    images[:, :, 0] = np.arange(1, 41, dtype=np.uint8)[:, None, None]  # the left column names the image
    labels = np.arange(40, dtype=np.int64) % 10
    splits = dict.fromkeys(("train", "validation", "test"), (images, labels))
    data = ArrayDataset(
        "toy",
        [str(k) for k in range(10)],
        make_preprocessing((4, 4)),
        splits,
        augmentation=CropFlip(0, flip="alternating"),
    )
    loader = data.loader("train", batch_size=40, augment=True, seed=5)
    mirrored = []
    for epoch in range(3):
        (batch,) = loader.epoch(epoch)
        pixels = ((batch[0][:, 0] * 256 + 255) / 2).round().int()
        names = torch.maximum(pixels[:, 0, 0], pixels[:, 0, 3]) - 1
        assert torch.equal(names, loader.latest.int())
        mirrored.append(torch.zeros(40, dtype=torch.bool).index_put((names.long(),), pixels[:, 0, 3] > 0))
    assert torch.equal(mirrored[0], ~mirrored[1])
    assert torch.equal(mirrored[0], mirrored[2])
    assert 5 < int(mirrored[0].sum()) < 35
