"""Start a network from the weights of another run: a second stage, or a flip rule warm from real weights."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from bitedge.train.engine.checkpoint import read_tensors
from bitedge.train.errors import TrainError
from bitedge.train.nn.parameter import is_binary
from bitedge.train.nn.quantize import sign
from bitedge.train.optim import ModelOptimizer
from bitedge.train.optim.registry import find_rule


def initialize_from(module: nn.Module, folder: Path) -> dict[str, Tensor]:
    """Copy the best weights of a run; return the real values of those that became ±1, by name.

    The networks must agree in names and shapes; weights of the run may be real where those of the module are binary,
    which then take their sign.
    """
    path = folder / "best.safetensors"
    try:
        state = read_tensors(path)
    except Exception as error:
        raise TrainError(f"network.init: cannot read {path}: {error}") from error
    own = module.state_dict()
    wrong = sorted(set(state) ^ set(own)) or sorted(name for name in own if own[name].shape != state[name].shape)
    if wrong:
        raise TrainError(f"network.init: {path} is of another network: {wrong[0]} and {len(wrong) - 1} more differ")
    real: dict[str, Tensor] = {}
    for name, parameter in module.named_parameters():
        if is_binary(parameter):
            real[name] = state[name]
            state[name] = sign(state[name])
    module.load_state_dict(state)
    return real


@torch.no_grad()
def warm_averages(optimizer: ModelOptimizer, real: dict[str, Tensor]) -> None:
    """Start the gradient averages of binary weights at `-warm_start·w` with w the real values instead of their signs.

    A weight that was far from 0 then takes a longer pull to flip than one near 0, as it would have with latent weights.
    """
    for group in optimizer.param_groups:
        rule = find_rule(group["rule"])
        if not rule.binary or not group["warm_start"]:
            continue
        for name, parameter in zip(group["param_names"], group["params"], strict=True):
            state = optimizer.state[parameter]
            rule.initialize(parameter, group, state)
            for value in state.values():  # averages are -warm_start·sign(w) or 0 now
                if isinstance(value, Tensor) and value.shape == parameter.shape and value.is_floating_point():
                    value.mul_(real[name].to(value).abs())
