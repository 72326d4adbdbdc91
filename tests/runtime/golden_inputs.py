"""The inputs of golden vectors, generated as docs/format.md says; and the model files that the C++ tests use."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from tests.runtime import reference
from tests.runtime.packed_file import Array, PackedFile, small_model
from tests.runtime.random_models import random_model

SEED = 41
COUNT = 3
MASK = 2**64 - 1


def splitmix64(seed: int, words: int) -> list[int]:
    """The first words of the sequence, as Steele, Lea and Flood publish it (OOPSLA 2014)."""
    made = []
    for _ in range(words):
        seed = (seed + 0x9E3779B97F4A7C15) & MASK
        z = ((seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        made.append(z ^ (z >> 31))
    return made


def golden_images(file: PackedFile, seed: int = SEED, count: int = COUNT) -> Array:
    """So many images of the model's kind and shape."""
    shape = tuple(file.keys["bitedge.input.shape"][1])
    size = int(np.prod(shape))
    words = [splitmix64((seed + n) & MASK, -(-size // 8)) for n in range(count)]
    octets = np.array(words, "<u8").view(np.uint8).reshape(count, -1)[:, :size].reshape(count, *shape)
    if file.keys["bitedge.input.kind"][1] == "uint8":
        return octets
    return (2 * octets.astype(np.float32) - 255) / 256


def with_golden(file: PackedFile) -> PackedFile:
    """The model with the answers of the numpy reference as golden vectors."""
    answers = list(reference.run(file, golden_images(file)).values())[file.keys["bitedge.graph.output"][1]]
    file.keys["bitedge.golden.count"] = ("u32", COUNT)
    file.keys["bitedge.golden.seed"] = ("u64", SEED)
    file.tensors["golden.output"] = answers.reshape(COUNT, -1).astype(np.float32)
    return file


def committed_models() -> dict[str, bytes]:
    """The files in runtime/tests/data, by name."""
    return {
        "small.gguf": with_golden(small_model()).build(),
        "image.gguf": with_golden(random_model(6, nodes=8)).build(),
        "float.gguf": with_golden(random_model(12, nodes=8)).build(),
        "steps.gguf": with_golden(random_model(201, nodes=8, version=2)).build(),
    }


if __name__ == "__main__":
    for name, data in committed_models().items():
        (Path(sys.argv[1]) / name).write_bytes(data)
