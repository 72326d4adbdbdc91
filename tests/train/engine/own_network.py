"""A network of a user's own, as a script would have it: `python own_network.py OUT [kill STEPS]` trains it."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import torch
from torch import Tensor, nn

from bitedge.train import BinaryConv2d, Callback, fit, load_dataset


class Block(nn.Module):
    def __init__(self, channels: int, out_channels: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = BinaryConv2d(channels, out_channels, 3, stride=stride, padding=1)
        self.norm = nn.BatchNorm2d(out_channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or channels != out_channels:
            self.shortcut = nn.Sequential(
                nn.AvgPool2d(stride), nn.Conv2d(channels, out_channels, 1, bias=False), nn.BatchNorm2d(out_channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(self.conv(x)) + self.shortcut(x)
        return out


class Residual(nn.Sequential):
    def __init__(self, num_classes: int = 10, width: int = 8) -> None:
        super().__init__(
            nn.Conv2d(3, width, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(width),
            Block(width, width),
            Block(width, 2 * width, stride=2),
            nn.Dropout(0.1),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(2 * width, num_classes),
        )


RECIPE: dict[str, Any] = {
    "name": "own",
    "epochs": 3,
    "batch_size": 50,
    "ema": 0.9,
    "data": {"limit": 300},
    "optimizer": {
        "rule": "bop2nd",
        "gamma": {"kind": "geometric", "start": 1e-2, "end": 1e-4},
        "sigma": 1e-2,
        "tau": 1.0,
        "threshold": "noise",
        "lr": {"kind": "linear", "start": 1e-2, "end": 1e-3},
    },
    "execution": {"threads": 1, "checkpoint_steps": 2, "telemetry_steps": 5},
}


class KillAfter(Callback):
    """End this process as kill -9 does, after so many steps."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def step(self, step: int, figures: object) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def main(out: str, kill: int) -> None:
    torch.manual_seed(0)
    data = load_dataset("digits", validation=60)
    fit(RECIPE, out=out, model=Residual(), dataset=data, resume=True, callbacks=[KillAfter(kill)])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0)
