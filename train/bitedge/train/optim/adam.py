"""Adam for real parameters, and for latent weights, as rules that a parameter group can name.

Papers: Kingma & Ba, "Adam: A Method for Stochastic Optimization", https://arxiv.org/abs/1412.6980; AdamW: Loshchilov &
Hutter, "Decoupled Weight Decay Regularization", https://arxiv.org/abs/1711.05101; latent weights: Courbariaux et al.,
 "Binarized Neural Networks", https://arxiv.org/abs/1602.02830.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim.adam import adam

from .rule import Group, ParameterState, Rule


class AdamRule(Rule):
    """torch's own Adam, with the eps of the paper; weight decay is coupled (an L2 term), or `decoupled` as in AdamW."""

    name = "adam"
    binary = False
    scheduled = ("lr",)
    slots = ("step", "exp_avg", "exp_avg_sq")
    defaults: ClassVar[Mapping[str, Any]] = {
        "lr": 1e-2,
        "betas": (0.9, 0.999),
        "eps": 1e-7,
        "weight_decay": 0.0,
        "decoupled": False,
        "maximize": False,
        "foreach": None,
        "capturable": False,
    }

    def initialize(self, parameter: Tensor, group: Group, state: ParameterState) -> None:
        """Create what torch's Adam keeps."""
        if state:
            return
        device = parameter.device if group["capturable"] or parameter.device.type == "cuda" else torch.device("cpu")
        state["step"] = torch.zeros((), dtype=torch.float32, device=device)
        state["exp_avg"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        state["exp_avg_sq"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)

    def apply(self, params: list[Tensor], grads: list[Tensor], states: list[ParameterState], group: Group) -> None:
        """Call torch's functional Adam: the fused one, unless the group asks for another or a graph is captured."""
        # torch refuses `capturable` where there is no graph to capture: on a CPU, outside of a compiled step
        capturable = group["capturable"] and (torch.compiler.is_compiling() or params[0].device.type != "cpu")
        fused = group["foreach"] is None and not capturable and not torch.compiler.is_compiling()
        adam(
            params,
            grads,
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            amsgrad=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=group["maximize"],
            foreach=group["foreach"],
            capturable=capturable,
            fused=fused,
            decoupled_weight_decay=group["decoupled"],
        )


class LatentRule(AdamRule):
    """Adam on latent weights, which a layer binarizes in its forward pass; they are kept within ±`clip`.

    Outside ±1 the straight-through estimator has no gradient, so an unclipped weight could never come back.
    """

    name = "latent"
    defaults: ClassVar[Mapping[str, Any]] = {**AdamRule.defaults, "clip": 1.0}

    def apply(self, params: list[Tensor], grads: list[Tensor], states: list[ParameterState], group: Group) -> None:
        """Adam, then the clip."""
        super().apply(params, grads, states, group)
        torch._foreach_clamp_max_(params, group["clip"])
        torch._foreach_clamp_min_(params, -group["clip"])
