"""Writes runtime/tests/data/birealnet18.gguf: a narrow BiRealNet18 with random weights, exported as a trained one is.

python tests/runtime/exported_network.py runtime/tests/data
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch

from bitedge.cli.bench.networks import preprocessing, settle
from bitedge.export import export
from bitedge.train.models import BiRealNet18

SIZE, WIDTH, CLASSES, SEED = 64, 16, 10, 1


def write(folder: Path) -> None:
    """Write the file, golden vectors included."""
    torch.manual_seed(SEED)
    module = BiRealNet18(num_classes=CLASSES, width=WIDTH, image_size=SIZE)
    settle(module, (3, SIZE, SIZE), SEED)
    module.eval()
    with tempfile.TemporaryDirectory() as made:
        export(module, (3, SIZE, SIZE), made, formats=("gguf",), preprocessing=preprocessing(SIZE))
        (folder / "birealnet18.gguf").write_bytes((Path(made) / "model.gguf").read_bytes())


if __name__ == "__main__":
    write(Path(sys.argv[1]))
