"""scikit-learn's embedded digits: 1,797 scans of 8x8 pixels, for a demonstration that needs no download.

They are the test part of the UCI set "Optical Recognition of Handwritten Digits" (Alpaydin and Kaynak, 1998).
The 17 grey levels are spread over 0..255 and the scan is enlarged to 32x32 (Pillow, bilinear) in three equal channels,
so that the networks for CIFAR-10 take it as it is, and so that an 8x8 file sent to the service gives the same pixels.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from PIL import Image

from bitedge.train.data.arrays import ArrayDataset, CropFlip
from bitedge.train.data.dataset import Arrays
from bitedge.train.data.plan import stratified_holdout
from bitedge.train.data.preprocessing import Normalization, fit_image, make_preprocessing

TEST_IMAGES = 360
VALIDATION_IMAGES = 180
SPLIT_SEED = 0


def load_digits(*, validation: int = VALIDATION_IMAGES, normalization: Normalization = "dyadic") -> ArrayDataset:
    """Return the digits: 360 test images, `validation` held-out images and the rest to train on, each stratified.

    The splits are the same in every run, whatever its seed. The augmentation shifts by up to one scanned pixel
    (4 of the 32) and never mirrors.
    """
    preprocessing = make_preprocessing((32, 32), normalization=normalization)
    images, labels = read_images()
    rest, test = stratified_holdout(labels, TEST_IMAGES, SPLIT_SEED)
    kept, held = stratified_holdout(labels[rest], validation, SPLIT_SEED)
    chosen = {"train": rest[kept], "validation": rest[held], "test": test}
    return ArrayDataset(
        "digits",
        [str(digit) for digit in range(10)],
        preprocessing,
        {split: (images[index], labels[index]) for split, index in chosen.items()},
        augmentation=CropFlip(pad=4, flip=False),
    )


@cache
def read_images() -> Arrays:
    """Return all scans at 32x32 pixels, and their labels."""
    from sklearn.datasets import load_digits as read_scans  # a second to import, and only the digits need it

    scans, targets = read_scans(return_X_y=True)
    grey = np.rint(scans.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    preprocessing = make_preprocessing((32, 32))
    images = np.stack([np.asarray(fit_image(Image.fromarray(scan), preprocessing)) for scan in grey])
    return images, targets.astype(np.int64)
