"""Export the CIFAR-10 network of docs/microcontrollers.md with random weights: python -m boards.cifar10 OUT.

Weights change the count by 0.001 % at most (the last layer's floats), so it need not be trained to be counted.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from bitedge.export import export
from bitedge.train.models import BinaryNet

WIDTH, DENSE = 64, 128
PREPROCESSING: dict[str, Any] = {"size": [32, 32], "resize": None, "interpolation": "bilinear"}
PREPROCESSING |= {"scale": [2 / 256] * 3, "offset": [-255 / 256] * 3}


def main(out: Path) -> int:
    """Write OUT/c, and print the report."""
    torch.manual_seed(0)
    network = BinaryNet(width=WIDTH, dense=DENSE)
    report = export(network, (3, 32, 32), out, formats=["c"], preprocessing=PREPROCESSING)
    sys.stdout.write(report.text() + "\n")
    return 1 if report.failures else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m boards.cifar10 OUT")
    sys.exit(main(Path(sys.argv[1])))
