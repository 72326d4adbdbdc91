"""Classify images with a packed model: PNG, JPEG, WebP and BMP files (extra `image`), or .npy arrays.

bitedge predict photo.jpg                    with the CIFAR-10 model in the box
bitedge predict --model digits digit.png     with another one of the box
bitedge predict model.gguf photo.jpg         with a file of one's own
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bitedge.cli.errors import CommandError
from bitedge.cli.output import emit, table
from bitedge.runtime.box import DEFAULT, find_model

if TYPE_CHECKING:
    from bitedge.runtime import Model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take the model, the images, and how many classes to show."""
    parser.add_argument(
        "images",
        type=Path,
        nargs="+",
        metavar="[MODEL.gguf] IMAGE",
        help="image files, or uint8 HWC pixels as .npy; a packed model may come first",
    )
    parser.add_argument("--model", metavar="NAME|FILE", help=f"a model of the box or a file (default: {DEFAULT})")
    parser.add_argument("--top-k", type=int, default=3, metavar="K", help="how many classes to show (default: 3)")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="threads to run on (default: 1)")


def split_arguments(images: list[Path], model: str | None) -> tuple[Path, list[Path]]:
    """Tell the model from the images."""
    leads = images[0].suffix == ".gguf"
    if leads and model is not None:
        raise CommandError(f"two models, {images[0]} and --model {model}: give one")
    if leads and len(images) == 1:
        raise CommandError(f"expected images after the model: bitedge predict {images[0]} IMAGE")
    return (images[0], images[1:]) if leads else (find_model(model or DEFAULT), images)


def load_array(path: Path, model: Model) -> np.ndarray[Any, Any]:
    """Read pixels from a .npy file, in the shape and type that the model takes."""
    try:
        array: np.ndarray[Any, Any] = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise CommandError(f"{path}: not a .npy array of plain numbers: {error}") from None
    if array.shape != tuple(model.input_shape) or str(array.dtype) != model.input_kind:
        raise CommandError(
            f"{path}: expected {model.input_kind} of shape {list(model.input_shape)} (height, width, channels), "
            f"got {array.dtype} of shape {list(array.shape)}; save the image in that form, or give an image file"
        )
    return array


def load_pixels(path: Path, model: Model) -> np.ndarray[Any, Any]:
    """Read an image as the model wants it."""
    if path.suffix == ".npy":
        return load_array(path, model)
    if model.preprocessing is None or model.input_kind != "uint8":
        raise CommandError(f"{path}: the model does not say how to prepare an image; give its input as a .npy array")
    from bitedge.serve.api.errors import ServeError
    from bitedge.serve.inference.preprocessing import load_image

    try:
        return load_image(path, model.preprocessing)
    except ServeError as error:
        raise CommandError(f"{path}: {error}") from None


def probabilities(model: Model, image: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The probability of each class; a network that ends in a softmax gives them itself."""
    answer = model.run(image[None])[0]
    if model.nodes[-1].op == "softmax":
        return np.asarray(answer)
    raised = np.exp(answer - answer.max())
    return np.asarray(raised / raised.sum())


def run(args: argparse.Namespace) -> int:
    """Print the top classes of every image."""
    from bitedge.runtime import Model

    if args.top_k < 1:
        raise CommandError(f"--top-k: expected at least 1, got {args.top_k}")
    path, images = split_arguments(args.images, args.model)
    model = Model(path, threads=args.threads)
    labels = model.labels or tuple(map(str, range(model.output_count)))
    answers: list[dict[str, Any]] = []
    for image in images:
        scores = probabilities(model, load_pixels(image, model))
        best = np.argsort(-scores, kind="stable")[: args.top_k]
        answers.append(
            {"image": str(image), "classes": [{"label": labels[i], "score": float(scores[i])} for i in best]}
        )
    rows = [
        (answer["image"] if rank == 0 else "", entry["label"], f"{100 * entry['score']:.1f} %")
        for answer in answers
        for rank, entry in enumerate(answer["classes"])
    ]
    emit(args, {"model": str(path), "predictions": answers}, table(("image", "class", "score"), rows))
    return 0
