"""The embedded digits."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits as read_scans

from bitedge.serve.inference.preprocessing import load_image
from bitedge.train.data import DATASETS, load_dataset, load_digits
from bitedge.train.errors import TrainError


def test_splits_are_disjoint_stratified_and_complete() -> None:
    data = load_digits()
    assert [data.size(split) for split in ("train", "validation", "test")] == [1257, 180, 360]
    assert data.labels == list("0123456789")
    for split, share in (("validation", 18), ("test", 36)):
        counts = np.bincount(data.arrays(split)[1], minlength=10)
        assert np.abs(counts - share).max() <= 1
    everything = np.concatenate([data.arrays(split)[0] for split in ("train", "validation", "test")])
    scans = {scan.astype(np.uint8).tobytes() for scan in read_scans().data}
    assert len({image.tobytes() for image in everything}) == len(scans)


def test_images_are_grey_and_use_the_whole_range() -> None:
    images, _ = load_digits().test
    assert images.shape == (360, 32, 32, 3)
    assert images.dtype == np.uint8
    assert np.array_equal(images[..., 0], images[..., 1])
    assert np.array_equal(images[..., 0], images[..., 2])
    assert (images.min(), images.max()) == (0, 255)


def test_an_8x8_file_sent_to_the_service_gives_the_training_pixels() -> None:
    data = load_digits()
    scan = np.rint(read_scans().images[0] * (255 / 16)).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(scan).save(buffer, "PNG")
    served = load_image(buffer.getvalue(), dict(data.preprocessing))
    everything = np.concatenate([data.arrays(split)[0] for split in ("train", "validation", "test")])
    assert any(np.array_equal(served, image) for image in everything)


def test_split_does_not_depend_on_the_size_of_validation() -> None:
    default, none = load_digits(), load_digits(validation=0)
    assert np.array_equal(default.test[0], none.test[0])
    assert none.size("validation") == 0
    assert none.size("train") == 1437


def test_by_name() -> None:
    assert set(DATASETS) == {"digits", "cifar10", "folder"}
    assert load_dataset("digits", normalization="paper").preprocessing["offset"] == [-1.0] * 3
    with pytest.raises(TrainError, match="unknown data set 'mnist'; expected one of digits, cifar10, folder"):
        load_dataset("mnist")
    with pytest.raises(TrainError, match=r"data set 'digits': .*unexpected keyword argument 'foo'"):
        load_dataset("digits", foo=1)
    with pytest.raises(TrainError, match="give it with --data DIR"):
        load_dataset("cifar10")
