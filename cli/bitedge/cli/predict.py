"""Classify images with a packed model: PNG, JPEG, WebP and BMP files (extra `image`), or .npy arrays."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bitedge.cli.errors import CommandError
from bitedge.cli.output import emit, table

if TYPE_CHECKING:
    from bitedge.runtime import Model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take the model, the images, and how many classes to show."""
    parser.add_argument("model", type=Path, help="a packed model, model.gguf")
    parser.add_argument(
        "images", type=Path, nargs="+", metavar="image", help="an image file, or uint8 HWC pixels as .npy"
    )
    parser.add_argument("--top-k", type=int, default=3, metavar="K", help="how many classes to show (default: 3)")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="threads to run on (default: 1)")


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
    from bitedge.serve.errors import ServeError
    from bitedge.serve.images import load_image

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
    model = Model(args.model, threads=args.threads)
    labels = model.labels or tuple(map(str, range(model.output_count)))
    answers: list[dict[str, Any]] = []
    for path in args.images:
        scores = probabilities(model, load_pixels(path, model))
        best = np.argsort(-scores, kind="stable")[: args.top_k]
        answers.append({"image": str(path), "classes": [{"label": labels[i], "score": float(scores[i])} for i in best]})
    rows = [
        (answer["image"] if rank == 0 else "", entry["label"], f"{100 * entry['score']:.1f} %")
        for answer in answers
        for rank, entry in enumerate(answer["classes"])
    ]
    emit(args, {"model": str(args.model), "predictions": answers}, table(("image", "class", "score"), rows))
    return 0
