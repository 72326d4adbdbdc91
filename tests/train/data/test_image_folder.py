"""Image folders in ImageNet's layout, made here with real JPEG and PNG files."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from bitedge.train.data import load_folder
from bitedge.train.data.preprocessing import fit_image
from bitedge.train.errors import TrainError

CLASSES = ("ant", "bee", "cow")
TRAIN, VAL = 10, 4


@pytest.fixture
def root(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for split, count in (("train", TRAIN), ("val", VAL)):
        for label, name in enumerate(CLASSES):
            folder = tmp_path / "pets" / split / name
            folder.mkdir(parents=True)
            for number in range(count):
                height, width = rng.integers(20, 60, size=2)
                pixels = rng.integers(256, size=(height, width, 3), dtype=np.uint8)
                pixels[..., label] = 255  # each class has its colour
                Image.fromarray(pixels).save(folder / f"{number}.{'png' if number % 2 else 'JPEG'}")
            (folder / "notes.txt").write_text("not an image")
    return tmp_path / "pets"


def test_splits_classes_and_holdout(root: Path) -> None:
    data = load_folder(root, size=16, validation=6)
    assert [data.size(split) for split in ("train", "validation", "test")] == [24, 6, 12]
    assert data.name == "pets"
    assert data.labels == list(CLASSES)
    assert np.bincount(data.validation[1]).tolist() == [2, 2, 2]
    assert load_folder(root, size=16, validation=0.2).size("validation") == 6
    assert load_folder(root, size=16, validation=0).size("validation") == 0


def test_arrays_are_the_preprocessed_files(root: Path) -> None:
    data = load_folder(root, size=[12, 16], resize=20)
    images, labels = data.test
    assert images.shape == (12, 12, 16, 3)
    paths = [root / "val" / name / f"{n}.{'png' if n % 2 else 'JPEG'}" for name in CLASSES for n in range(VAL)]
    for path, image, label in zip(paths, images, labels, strict=True):
        assert CLASSES[label] == path.parent.name
        with Image.open(path) as file:
            assert np.array_equal(np.asarray(fit_image(file, data.preprocessing)), image)
    assert data.arrays("test", limit=3)[1].tolist() == [0, 1, 2]


def test_loader_gives_the_arrays(root: Path) -> None:
    data = load_folder(root, size=16, workers=0)
    batches = list(data.loader("test", batch_size=5).epoch(0))
    assert [len(labels) for _, labels in batches] == [5, 5, 2]
    images, labels = data.test
    together = torch.cat([batch for batch, _ in batches])
    assert np.array_equal(((together * 256 + 255) / 2).permute(0, 2, 3, 1).numpy(), images)
    assert torch.cat([batch for _, batch in batches]).tolist() == labels.tolist()


@pytest.mark.parametrize("resize", [None, 20])
def test_views_do_not_depend_on_workers_or_processes(root: Path, resize: int | None) -> None:
    def batches(workers: int, rank: int = 0, world: int = 1, start: int = 0) -> list[tuple[torch.Tensor, torch.Tensor]]:
        data = load_folder(root, size=16, resize=resize, workers=workers, validation=0)
        loader = data.loader("train", batch_size=8, seed=3, augment=True, rank=rank, world=world)
        assert len(loader) == 3
        return list(loader.epoch(2, start=start))

    alone = batches(0)
    for (images, labels), (others, other_labels) in zip(alone, batches(2), strict=True):
        assert torch.equal(images, others)
        assert torch.equal(labels, other_labels)
    assert torch.equal(batches(0, start=2)[0][0], alone[2][0])
    halves = batches(0, 0, 2), batches(0, 1, 2)
    for (images, _), (first, _), (second, _) in zip(alone, *halves, strict=True):
        assert torch.equal(images[0::2], first)
        assert torch.equal(images[1::2], second)


@pytest.mark.parametrize(("resize", "name"), [(None, "crop_flip"), (20, "resized_crop")])
def test_augmentation_follows_resize_and_changes_with_the_epoch(root: Path, resize: int | None, name: str) -> None:
    data = load_folder(root, size=16, resize=resize, workers=0, validation=0)
    assert data.augmentation == name
    loader = data.loader("train", batch_size=30, augment=True, shuffle=False)
    first, second = next(loader.epoch(0))[0], next(loader.epoch(1))[0]
    assert not torch.equal(first, second)
    assert torch.equal(first, next(loader.epoch(0))[0])


def test_every_image_gets_its_own_view(root: Path) -> None:
    for path in (root / "train" / "ant").glob("*.[pJ]*"):
        Image.fromarray(np.arange(16 * 16 * 3, dtype=np.uint8).reshape(16, 16, 3)).save(path, "PNG")
    data = load_folder(root, size=16, workers=0, validation=0)
    images, labels = next(data.loader("train", batch_size=30, augment=True, shuffle=False).epoch(0))
    views = {image.numpy().tobytes() for image in images[labels == 0]}
    assert len(views) > TRAIN // 2


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("damage", ["text", "cut"])
def test_damaged_file_is_named_in_one_line(root: Path, workers: int, damage: str) -> None:
    path = root / "train" / "bee" / "4.JPEG"
    path.write_bytes(b"not an image" if damage == "text" else path.read_bytes()[:200])
    loader = load_folder(root, size=16, workers=workers, validation=0).loader("train", batch_size=6)
    with pytest.raises(TrainError, match=r"bee/4\.JPEG cannot be read as an image") as caught:
        list(loader.epoch(0))
    assert "\n" not in str(caught.value)


def test_damaged_png_header_is_named(root: Path) -> None:
    path = root / "val" / "ant" / "1.png"
    content = bytearray(path.read_bytes())
    content[20] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(TrainError, match=r"ant/1\.png cannot be read"):
        load_folder(root, size=16).arrays("test")


def test_readable_names(root: Path) -> None:
    (root / "classes.tsv").write_text("ant\tAnt, emmet\nbee\tHoney bee\ncow\tCow\n")
    assert load_folder(root).labels == ["Ant", "Honey bee", "Cow"]
    (root / "classes.tsv").write_text("ant\tInsect\nbee\tInsect\ncow\tCow\n")
    assert load_folder(root).labels == list(CLASSES)


def test_grey_and_transparent_files_become_rgb(root: Path) -> None:
    buffer = io.BytesIO()
    Image.fromarray(np.full((30, 30), 9, np.uint8)).save(buffer, "PNG")
    (root / "val" / "ant" / "0.JPEG").write_bytes(buffer.getvalue())
    assert np.all(load_folder(root, size=16).test[0][0] == 9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"augmentation": "mixup"}, "augmentation must be one of resized_crop, crop_flip, got 'mixup'"),
        ({"workers": -1}, "workers must be 0 or more"),
        ({"validation": 30}, "cannot hold out 30 of 30 images"),
        ({"size": 0}, "size must be positive"),
        ({"size": [16, 16, 3]}, r"size must be one number or \[height, width\], got \[16, 16, 3\]"),
    ],
)
def test_bad_options_are_refused(root: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(TrainError, match=message):
        load_folder(root, **options)


def test_bad_layouts_are_refused(root: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainError, match=r"expected the folders train/<class>/ and val/<class>/ there"):
        load_folder(tmp_path / "nowhere")
    (root / "train" / "dog").mkdir()
    with pytest.raises(TrainError, match="dog has no images"):
        load_folder(root)
    Image.new("RGB", (8, 8)).save(root / "train" / "dog" / "0.png")
    with pytest.raises(TrainError, match="must have the same classes, only one of them has dog"):
        load_folder(root)
