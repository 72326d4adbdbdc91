"""SGD with momentum for real parameters and for latent weights, as rules that a parameter group can name.

Sutskever et al., "On the importance of initialization and momentum in deep learning", ICML 2013.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim.sgd import sgd

from .rule import Group, ParameterState, Rule


class SgdRule(Rule):
    """torch's own SGD with momentum and coupled weight decay; `lr_factor` multiplies the rate of a group."""

    name = "sgd"
    binary = False
    scheduled = ("lr",)
    slots = ("momentum_buffer",)
    defaults: ClassVar[Mapping[str, Any]] = {
        "lr": 1e-2,
        "lr_factor": 1.0,
        "momentum": 0.9,
        "nesterov": False,
        "weight_decay": 0.0,
        "maximize": False,
        "foreach": None,
        "capturable": False,
    }

    def initialize(self, parameter: Tensor, group: Group, state: ParameterState) -> None:
        """Start with no momentum: torch's SGD makes the buffer of the first gradient."""
        del parameter, group
        state.setdefault("momentum_buffer", None)

    def apply(self, params: list[Tensor], grads: list[Tensor], states: list[ParameterState], group: Group) -> None:
        """Call torch's functional SGD and keep the buffers that it makes."""
        buffers: list[Tensor | None] = [state["momentum_buffer"] for state in states]
        sgd(
            params,
            grads,
            buffers,
            weight_decay=group["weight_decay"],
            momentum=group["momentum"],
            lr=group["lr"] * group["lr_factor"],
            dampening=0.0,
            nesterov=group["nesterov"],
            maximize=group["maximize"],
            foreach=group["foreach"],
        )
        for state, buffer in zip(states, buffers, strict=True):
            state["momentum_buffer"] = buffer


class LatentSgdRule(SgdRule):
    """SGD on latent weights, which a layer binarizes in its forward pass; they are kept within ±`clip`."""

    name = "latent_sgd"
    defaults: ClassVar[Mapping[str, Any]] = {**SgdRule.defaults, "clip": 1.0}

    def apply(self, params: list[Tensor], grads: list[Tensor], states: list[ParameterState], group: Group) -> None:
        """SGD, then the clip."""
        super().apply(params, grads, states, group)
        torch._foreach_clamp_max_(params, group["clip"])
        torch._foreach_clamp_min_(params, -group["clip"])
