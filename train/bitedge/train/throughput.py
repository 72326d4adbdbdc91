"""Training speed of a network in images per second, with and without what this package does for it.

python -m bitedge.train.throughput --network binarynet --width 32 --batch 100

A step is forward and backward without the optimizer, which `bitedge bench optimizers` measures. The variants:
`plain` uses torch's default layout and writes sign and mask as `torch.where` and a product; `channels_last` changes the
layout only; `tuned` is what the trainer does: channels last, and the quantizers of `bitedge.train.nn.quantize`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function

from bitedge.train.errors import TrainError
from bitedge.train.models import NETWORKS
from bitedge.train.nn import BinaryLayer


class _PlainSign(Function):
    """The straightforward sign with a straight-through gradient, to compare with."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.where(x >= 0, 1.0, -1.0)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        return grads[0] * (x.abs() <= 1)


def _plain_sign(x: Tensor) -> Tensor:
    return cast(Tensor, _PlainSign.apply(x))  # type: ignore[no-untyped-call]


VARIANTS = {
    "plain": (torch.contiguous_format, True),
    "channels_last": (torch.channels_last, True),
    "tuned": (torch.channels_last, False),
}


def measure_training(
    network: str = "binarynet",
    *,
    width: int = 32,
    image_size: int = 32,
    batch: int = 100,
    rounds: int = 10,
    threads: int | None = None,
) -> dict[str, Any]:
    """Time training steps of every variant in turns; return images per second, per second of CPU time, and speedups.

    The speeds are medians. A speedup is the median over rounds of the quotient of two CPU times in one round, so that
    a busy machine disturbs both alike; with one thread, CPU time hardly depends on what else runs.
    """
    if network not in NETWORKS:
        raise TrainError(f"unknown network {network!r}; expected one of {', '.join(NETWORKS)}")
    if min(batch, rounds) < 1 or (threads is not None and threads < 1):
        raise TrainError(f"batch, rounds and threads must be positive, got {batch}, {rounds} and {threads}")
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        steps = {name: _step(network, width, image_size, batch, *how) for name, how in VARIANTS.items()}
        for step in steps.values():
            step()
        wall: dict[str, list[float]] = {name: [] for name in steps}
        cpu: dict[str, list[float]] = {name: [] for name in steps}
        for _ in range(rounds):
            for name, step in steps.items():
                start = time.perf_counter(), time.process_time()
                step()
                wall[name].append(time.perf_counter() - start[0])
                cpu[name].append(time.process_time() - start[1])
        used = torch.get_num_threads()
    finally:
        torch.set_num_threads(before)
    return {
        "network": network,
        "width": width,
        "image_size": image_size,
        "batch": batch,
        "threads": used,
        "torch": torch.__version__,
        "images_per_second": {name: batch / statistics.median(values) for name, values in wall.items()},
        "images_per_cpu_second": {name: batch / statistics.median(values) for name, values in cpu.items()},
        "speedup": {
            name: statistics.median(plain / own for plain, own in zip(cpu["plain"], values, strict=True))
            for name, values in cpu.items()
        },
    }


def _step(
    network: str, width: int, image_size: int, batch: int, layout: torch.memory_format, plain: bool
) -> Callable[[], None]:
    """Return one forward and backward pass on random images."""
    torch.manual_seed(0)
    module: nn.Module = NETWORKS[network](num_classes=10, width=width, image_size=image_size, quantizer="ste")
    module = module.to(memory_format=layout)  # type: ignore[call-overload]
    for layer in module.modules():
        if plain and isinstance(layer, BinaryLayer) and layer.input_quantizer:
            layer.quantize_input = _plain_sign  # type: ignore[method-assign]
    images = torch.randn(batch, 3, image_size, image_size).contiguous(memory_format=layout)
    labels = torch.randint(10, (batch,))

    def run() -> None:
        module.zero_grad()
        F.cross_entropy(module(images), labels).backward()  # type: ignore[no-untyped-call]

    return run


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="training speed in images per second")
    parser.add_argument("--network", default="binarynet", choices=list(NETWORKS))
    for name, default in (("width", 32), ("image-size", 32), ("batch", 100), ("rounds", 10)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--threads", type=int)
    report = measure_training(**vars(parser.parse_args()))
    about = "{network} width {width}, {image_size}x{image_size}, batch {batch}, {threads} threads, torch {torch}"
    print(about.format(**report))
    for name, speed in report["images_per_second"].items():
        per_cpu = report["images_per_cpu_second"][name]
        print(f"{name:14} {speed:8.1f} images/s {per_cpu:8.1f} per CPU second {report['speedup'][name]:6.2f} x plain")


if __name__ == "__main__":
    main()
