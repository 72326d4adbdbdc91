"""Time the optimizers on the parameters of BinaryNet, against torch's Adam, and as a part of a whole training step."""

from __future__ import annotations

import copy
import os
import shutil
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from bitedge.train.errors import TrainError
from bitedge.train.nn.parameter import is_binary

from .bop import Bop
from .bop2nd import Bop2ndOrder
from .model_optimizer import ModelOptimizer

ADAMS: Mapping[str, dict[str, Any]] = {"adam fused": {"fused": True}, "adam foreach": {"foreach": True}}
BINARY: Mapping[str, Callable[..., Optimizer]] = {
    "bop": Bop,
    "bop2nd biased": lambda params, **options: Bop2ndOrder(params, mode="biased", **options),
    "bop2nd unbiased": lambda params, **options: Bop2ndOrder(params, mode="unbiased", **options),
    "bop2nd adam": lambda params, **options: Bop2ndOrder(params, mode="adam", **options),
}


def benchmark(
    *,
    width: int = 128,
    batch: int = 50,
    rounds: int = 15,
    training_rounds: int = 5,
    threads: int | None = None,
    compiled: bool | None = None,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Time one optimizer step on all binary weights of a BinaryNet, then one training step of that network.

    All candidates take turns in every round, and a ratio is the median over rounds of the quotient of two neighbours,
    so that a busy machine disturbs both sides alike. Gradients are random. The compiled kernels are measured too, by
    default where a C++ compiler is at hand.

    Returns:
        `{"weights", "width", "batch", "threads", "torch", "step_ms": {name: milliseconds}, "step_ratio": {name:
        {"adam fused": quotient, "adam foreach": quotient}}, "training_ms": {name: milliseconds}, "training_ratio":
        {name: quotient to bop}}`; training is left out with `training_rounds=0`.
    """
    if rounds < 1 or training_rounds < 0 or width < 1 or batch < 1:
        raise TrainError(
            "rounds, width and batch must be at least 1 and training_rounds at least 0, "
            f"got {rounds}, {width}, {batch} and {training_rounds}"
        )
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    say = progress or (lambda _: None)
    try:
        from bitedge.train.models import BinaryNet

        torch.manual_seed(0)
        network = BinaryNet(width=width)
        result: dict[str, Any] = {
            "weights": sum(parameter.numel() for parameter in network.parameters() if is_binary(parameter)),
            "width": width,
            "batch": batch,
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
        }
        say(f"optimizer steps on {result['weights']:,} binary weights, {rounds} rounds")
        with_compiled = has_compiler() if compiled is None else compiled
        result |= time_steps(network, rounds, with_compiled)
        if training_rounds:
            say(f"training steps with batches of {batch}, {training_rounds} rounds")
            result |= time_training(network, batch, training_rounds)
        return result
    finally:
        torch.set_num_threads(before)


def has_compiler() -> bool:
    """Whether torch.compile finds what it needs on a CPU."""
    return any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "g++", "clang++"))


def time_steps(network: nn.Module, rounds: int, compiled: bool) -> dict[str, Any]:
    """The optimizers alone, each on its own copy of the binary weights."""
    weights = [parameter.detach() for parameter in network.parameters() if is_binary(parameter)]
    grads = [torch.randn_like(weight) for weight in weights]

    def parameters() -> list[Tensor]:
        copies = [nn.Parameter(weight.clone()) for weight in weights]
        for parameter, grad in zip(copies, grads, strict=True):
            parameter.grad = grad
        return list(copies)

    steps: dict[str, Callable[[], Any]] = {}
    for name, options in ADAMS.items():
        steps[name] = torch.optim.Adam(parameters(), **options).step
    for name, make in BINARY.items():
        steps[name] = make(parameters()).step
        if compiled:
            steps[f"{name} compiled"] = make(parameters(), compiled=True).step
    seconds = interleave(steps, rounds)
    ratios = {
        name: {adam: quotient(times, seconds[adam]) for adam in ADAMS}
        for name, times in seconds.items()
        if name not in ADAMS
    }
    return {"step_ms": milliseconds(seconds), "step_ratio": ratios}


def time_training(network: nn.Module, batch: int, rounds: int) -> dict[str, Any]:
    """Forward, backward and optimizer step, with Adam on the real parameters, each candidate with its own network."""
    images, labels = torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,))

    def training(**options: Any) -> Callable[[], None]:
        own = copy.deepcopy(network).train()
        optimizer = ModelOptimizer(own, **options)

        def step() -> None:
            optimizer.zero_grad()
            torch.autograd.backward(F.cross_entropy(own(images), labels))
            optimizer.step()

        return step

    steps = {
        "bop": training(rule="bop"),
        **{f"bop2nd {mode}": training(rule="bop2nd", mode=mode) for mode in ("biased", "unbiased", "adam")},
    }
    seconds = interleave(steps, rounds)
    ratios = {name: quotient(times, seconds["bop"]) for name, times in seconds.items() if name != "bop"}
    return {"training_ms": milliseconds(seconds), "training_ratio": ratios}


def interleave(steps: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds of every call in every round, after one round to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(rounds + 1):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def milliseconds(seconds: Mapping[str, list[float]]) -> dict[str, float]:
    """Medians."""
    return {name: 1e3 * statistics.median(times) for name, times in seconds.items()}


def quotient(times: list[float], others: list[float]) -> float:
    """The median over rounds of one time by another of the same round."""
    return statistics.median(time / other for time, other in zip(times, others, strict=True))
