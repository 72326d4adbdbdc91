"""Image folders in ImageNet's layout, `train/<class>/` and `val/<class>/`, decoded by worker processes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils import data as torch_data

from bitedge.train.data.augment import AUGMENTATIONS
from bitedge.train.data.dataset import Arrays, Batch, Dataset, check_split, spread
from bitedge.train.data.plan import EpochPlan, random_stream, stratified_holdout
from bitedge.train.data.preprocessing import Normalization, Normalizer, Preprocessing, fit_image, make_preprocessing
from bitedge.train.errors import TrainError

SUFFIXES = (".jpeg", ".jpg", ".png", ".webp", ".bmp")
NAMES_FILE = "classes.tsv"
SPLIT_SEED = 0

_Request: TypeAlias = list[tuple[int, int, int]]  # image, its place in the epoch, epoch


@dataclass(frozen=True)
class Files:
    """The files of one split and their labels."""

    paths: tuple[str, ...]
    labels: NDArray[np.int64]

    def take(self, index: NDArray[np.int64]) -> Files:
        """Return the chosen ones."""
        return Files(tuple(self.paths[i] for i in index), self.labels[index])


def load_folder(
    root: Path | str,
    *,
    size: int | Sequence[int] | None = None,
    resize: int | None = None,
    interpolation: str = "bicubic",
    normalization: Normalization = "dyadic",
    validation: int | float = 0.05,
    augmentation: str | None = None,
    workers: int | None = None,
) -> FolderDataset:
    """Open `root/train/<class>/` and `root/val/<class>/`: any number of classes, any image sizes.

    `size` is the network's input, one number or `[height, width]`, 224 unless given. With `resize` the shorter side is
    brought there and the centre is cut out, as for ImageNet (256); without, images go straight to `size`, for sets of
    small images of one size. `augmentation` is `"resized_crop"` (the default with `resize`) or `"crop_flip"` (without).

    `val/` is the test split. `validation` images, a number or a fraction, are held out of `train/`, stratified, the
    same ones in every run. `workers` processes decode: one per core up to 8 unless given, 0 decodes in this process.
    A file `classes.tsv` (folder name, tab, readable name) gives the labels; otherwise the folder names do.
    """
    root = Path(root)
    sides = (224, 224) if size is None else (size, size) if isinstance(size, int) else tuple(size)
    if len(sides) != 2:
        raise TrainError(f"size must be one number or [height, width], got {list(sides)}")
    preprocessing = make_preprocessing(
        (sides[0], sides[1]), resize=resize, interpolation=interpolation, normalization=normalization
    )
    if augmentation is None:
        augmentation = "crop_flip" if resize is None else "resized_crop"
    if augmentation not in AUGMENTATIONS:
        raise TrainError(f"augmentation must be one of {', '.join(AUGMENTATIONS)}, got {augmentation!r}")
    if workers is not None and workers < 0:
        raise TrainError(f"workers must be 0 or more, got {workers}")

    classes, train = _scan(root / "train")
    test_classes, test = _scan(root / "val")
    if classes != test_classes:
        odd = sorted(set(classes) ^ set(test_classes))
        raise TrainError(
            f"{root}: train/ and val/ must have the same classes, only one of them has {', '.join(odd[:5])}"
        )
    count = round(validation * len(train.paths)) if isinstance(validation, float) else validation
    kept, held = stratified_holdout(train.labels, count, SPLIT_SEED)
    splits = {"train": train.take(kept), "validation": train.take(held), "test": test}
    return FolderDataset(root.name, _labels(root / NAMES_FILE, classes), preprocessing, splits, augmentation, workers)


def _scan(folder: Path) -> tuple[list[str], Files]:
    if not folder.is_dir():
        raise TrainError(f"no images at {folder.parent}: expected the folders train/<class>/ and val/<class>/ there")
    classes = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    paths: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        found = sorted(
            os.path.join(place, file)  # noqa: PTH118  (a million paths: strings, not Path objects)
            for place, _, files in os.walk(folder / name)
            for file in files
            if file.lower().endswith(SUFFIXES)
        )
        if not found:
            raise TrainError(f"{folder / name} has no images ({', '.join(SUFFIXES)}); remove it or fill it")
        paths += found
        labels += [label] * len(found)
    if not classes:
        raise TrainError(f"{folder} has no class folders; expected {folder}/<class>/<image>")
    return classes, Files(tuple(paths), np.array(labels, dtype=np.int64))


def _labels(path: Path, classes: list[str]) -> list[str]:
    """Return readable names where the file has one for every class, and they differ."""
    if not path.is_file():
        return classes
    rows = (line.split("\t", 1) for line in path.read_text(encoding="utf-8").splitlines() if "\t" in line)
    names = {key: names.split(",")[0].strip() for key, names in rows}
    readable = [names.get(name, "") for name in classes]
    return readable if all(readable) and len(set(readable)) == len(classes) else classes


class FolderDataset(Dataset):
    """Images that are decoded when they are needed."""

    def __init__(
        self,
        name: str,
        labels: list[str],
        preprocessing: Preprocessing,
        splits: dict[str, Files],
        augmentation: str,
        workers: int | None,
    ) -> None:
        self.name = name
        self.labels = labels
        self.preprocessing = preprocessing
        self.augmentation = augmentation
        self.workers = workers
        self._splits = splits

    def size(self, split: str) -> int:
        """Return the number of images in a split."""
        check_split(split)
        return len(self._splits[split].paths)

    def arrays(self, split: str, *, limit: int | None = None) -> Arrays:
        """Decode a split, or `limit` images spread evenly over it."""
        files = self._splits[split].take(spread(self.size(split), limit))
        with ThreadPoolExecutor(_cores()) as pool:
            images = list(pool.map(lambda path: _decode(path, self.preprocessing), files.paths))
        height, width = self.preprocessing["size"]
        return np.array(images, np.uint8).reshape(-1, height, width, 3), files.labels

    def limited(self, count: int) -> FolderDataset:
        """Return the same data set with only `count` training images, spread evenly."""
        train = self._splits["train"].take(spread(self.size("train"), count))
        splits = {**self._splits, "train": train}
        return FolderDataset(self.name, self.labels, self.preprocessing, splits, self.augmentation, self.workers)

    def loader(
        self,
        split: str,
        *,
        batch_size: int,
        device: torch.device | str = "cpu",
        seed: int = 0,
        augment: bool = False,
        shuffle: bool | None = None,
        rank: int = 0,
        world: int = 1,
    ) -> FolderLoader:
        """Return the batches of a split."""
        count = self.size(split)
        if not count:
            raise TrainError(f"the {split} split of {self.name} is empty")
        files = self._splits[split]
        plan = EpochPlan(count, batch_size, seed, split == "train" if shuffle is None else shuffle, rank, world)
        decoder = _Decoder(files, self.preprocessing, self.augmentation if augment else None, seed)
        workers = min(8, max(1, _cores() // world)) if self.workers is None else self.workers
        return FolderLoader(decoder, plan, torch.device(device), workers)


class FolderLoader:
    """Batches that worker processes decode ahead; the device turns them into float32.

    The workers stay from epoch to epoch: starting them costs seconds where the list of files is long.
    """

    def __init__(self, decoder: _Decoder, plan: EpochPlan, device: torch.device, workers: int) -> None:
        self.plan = plan
        self._decoder = decoder
        self._device = device
        self._workers = workers
        self._normalize = Normalizer(decoder.preprocessing, device)
        self._requests: list[_Request] = []
        self._batches: torch_data.DataLoader[tuple[Tensor, Tensor] | str] | None = None

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return len(self.plan)

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch, from batch `start` on."""
        images = self.plan.indices(number).tolist()
        places = self.plan.own(np.arange(self.plan.size, dtype=np.int64)).tolist()
        step = self.plan.local_batch
        self._requests[:] = [
            [
                (image, place, number)
                for image, place in zip(images[at : at + step], places[at : at + step], strict=True)
            ]
            for at in range(start * step, len(images), step)
        ]
        on_gpu = self._device.type == "cuda"
        for batch in self._loader(on_gpu):
            if isinstance(batch, str):
                raise TrainError(batch)
            pixels, labels = (part.to(self._device, non_blocking=on_gpu) for part in batch)
            yield self._normalize(pixels), labels

    def _loader(self, on_gpu: bool) -> torch_data.DataLoader[tuple[Tensor, Tensor] | str]:
        if self._batches is None:
            workers = min(self._workers, len(self.plan))
            self._batches = torch_data.DataLoader(
                self._decoder,
                batch_size=None,  # an item of the decoder is a whole batch
                sampler=self._requests,  # read anew at the start of every epoch
                num_workers=workers,
                pin_memory=on_gpu,
                persistent_workers=workers > 0,
                generator=torch.Generator(),  # of its own: starting an epoch draws none of the run's random numbers
            )
        return self._batches


class _Decoder(torch_data.Dataset[tuple[Tensor, Tensor] | str]):
    """What runs in a worker: from the numbers of the images to a uint8 batch, or to the text of an error."""

    def __init__(self, files: Files, preprocessing: Preprocessing, augmentation: str | None, seed: int) -> None:
        self.preprocessing = preprocessing
        self._files = files
        self._augmentation = augmentation
        self._seed = seed

    def __getitem__(self, request: _Request) -> tuple[Tensor, Tensor] | str:
        try:
            images = [self._view(*item) for item in request]
        except TrainError as error:  # as text: DataLoader would bury the message under the worker's traceback
            return str(error)
        labels = self._files.labels[[item[0] for item in request]]
        return torch.from_numpy(np.stack(images)), torch.from_numpy(labels)

    def _view(self, image: int, place: int, epoch: int) -> NDArray[np.uint8]:
        rng = random_stream(self._seed, epoch, 2, place) if self._augmentation else None
        return _decode(self._files.paths[image], self.preprocessing, self._augmentation, rng)


def _decode(
    path: str,
    preprocessing: Preprocessing,
    augmentation: str | None = None,
    rng: np.random.Generator | None = None,
) -> NDArray[np.uint8]:
    """Read one file as uint8 `[H, W, 3]`, as for evaluation or as a random view."""
    try:
        with Image.open(path) as image:
            if augmentation is None or rng is None:
                return np.asarray(fit_image(image, preprocessing))
            return np.asarray(AUGMENTATIONS[augmentation](image, preprocessing, rng))
    except (OSError, SyntaxError, TrainError) as error:  # Pillow meets a damaged PNG with a SyntaxError
        raise TrainError(f"{path} cannot be read as an image: {error}") from error


def _cores() -> int:
    """Return the processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
