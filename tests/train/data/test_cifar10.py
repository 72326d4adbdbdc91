"""CIFAR-10 in its official layout: small files made here, and once the real one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bitedge.train.data import load_cifar10
from bitedge.train.data.cifar10_files import FOLDER, LABELS, TEST_FILE, TRAIN_FILES
from bitedge.train.errors import TrainError

RECORDS = 20


def write_batches(folder: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """Write the six files with two images of each class, and return the table of all training records."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(1)
    tables = []
    for name in (*TRAIN_FILES, TEST_FILE):
        table = rng.integers(256, size=(RECORDS, 3073), dtype=np.uint8)
        table[:, 0] = rng.permutation(np.arange(RECORDS) % 10)
        table.tofile(folder / name)
        tables.append(table)
    (folder / "batches.meta.txt").write_text("\n".join(LABELS) + "\n\n")
    return np.concatenate(tables[:5])


@pytest.mark.parametrize("inside", [False, True])
def test_reads_planes_into_pixels(tmp_path: Path, inside: bool) -> None:
    table = write_batches(tmp_path / "data" / FOLDER if inside else tmp_path / "data")
    data = load_cifar10(tmp_path / "data", validation=0, records_per_file=RECORDS)
    images, labels = data.train
    assert images.shape == (100, 32, 32, 3)
    assert labels.tolist() == table[:, 0].tolist()
    for record, row, column, channel in ((0, 0, 0, 0), (7, 3, 30, 1), (99, 31, 0, 2)):
        assert images[record, row, column, channel] == table[record, 1 + channel * 1024 + row * 32 + column]
    assert data.labels == list(LABELS)
    assert data.preprocessing["size"] == [32, 32]


def test_validation_is_held_out_stratified_and_fixed(tmp_path: Path) -> None:
    write_batches(tmp_path / "data")
    data = load_cifar10(tmp_path / "data", validation=30, records_per_file=RECORDS)
    assert [data.size(split) for split in ("train", "validation", "test")] == [70, 30, 20]
    assert np.bincount(data.validation[1]).tolist() == [3] * 10
    again = load_cifar10(tmp_path / "data", validation=30, records_per_file=RECORDS)
    assert np.array_equal(data.validation[0], again.validation[0])
    held = {image.tobytes() for image in data.validation[0]}
    assert not held & {image.tobytes() for image in data.train[0]}


def test_names_are_optional(tmp_path: Path) -> None:
    write_batches(tmp_path / "data")
    (tmp_path / "data" / "batches.meta.txt").unlink()
    assert load_cifar10(tmp_path / "data", validation=0, records_per_file=RECORDS).labels == list(LABELS)


def test_missing_folder_is_refused_with_advice(tmp_path: Path) -> None:
    with pytest.raises(
        TrainError, match=r"no CIFAR-10 at .*: expected data_batch_1\.bin there or in cifar-10-batches-bin/"
    ):
        load_cifar10(tmp_path)


def test_missing_file_is_named(tmp_path: Path) -> None:
    write_batches(tmp_path / "data")
    (tmp_path / "data" / TEST_FILE).unlink()
    with pytest.raises(TrainError, match=r"incomplete: .*test_batch\.bin is missing"):
        load_cifar10(tmp_path / "data", validation=0, records_per_file=RECORDS)


@pytest.mark.parametrize("length", [0, 3073, RECORDS * 3073 - 1, RECORDS * 3073 + 1])
def test_wrong_length_is_named(tmp_path: Path, length: int) -> None:
    write_batches(tmp_path / "data")
    (tmp_path / "data" / TRAIN_FILES[2]).write_bytes(bytes(length))
    with pytest.raises(TrainError, match=rf"data_batch_3\.bin must have 61,460 bytes .* found {length:,};"):
        load_cifar10(tmp_path / "data", validation=0, records_per_file=RECORDS)


def test_wrong_label_is_refused(tmp_path: Path) -> None:
    table = write_batches(tmp_path / "data")[:RECORDS]
    table[4, 0] = 10
    table.tofile(tmp_path / "data" / TRAIN_FILES[0])
    with pytest.raises(TrainError, match=r"has a label 10, expected 0 to 9: it is not a CIFAR-10 batch"):
        load_cifar10(tmp_path / "data", validation=0, records_per_file=RECORDS)


def test_wrong_names_are_refused(tmp_path: Path) -> None:
    write_batches(tmp_path / "data")
    (tmp_path / "data" / "batches.meta.txt").write_text("cat\ndog\n")
    with pytest.raises(TrainError, match="must list 10 class names, found 2"):
        load_cifar10(tmp_path / "data", validation=0, records_per_file=RECORDS)


def test_the_real_set(cifar10_dir: Path) -> None:
    data = load_cifar10(cifar10_dir)
    assert [data.size(split) for split in ("train", "validation", "test")] == [45_000, 5_000, 10_000]
    assert np.bincount(data.validation[1]).tolist() == [500] * 10
    assert np.bincount(data.test[1]).tolist() == [1000] * 10
    assert data.labels == list(LABELS)
    # Photographs: neighbouring pixels are alike, which a wrong order of planes or rows would break.
    images = data.test[0][:500].astype(np.float64)
    across = np.abs(np.diff(images, axis=2)).mean()
    down = np.abs(np.diff(images, axis=1)).mean()
    shuffled = np.abs(images[:, :, 16:] - images[:, :, :16]).mean()
    assert max(across, down) < shuffled / 2
