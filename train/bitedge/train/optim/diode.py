"""Diode: flip a binary weight when most signs of its recent gradient averages point along it.

Paper: Guo, Guo, Meinel and Yang, "Enhancing Optimization Robustness in 1-bit Neural Networks through Stochastic Sign
Descent", ECCV 2024. It is CEMA with a sign between the two averages: a single large gradient counts no more than a
small one. The paper writes rates as betas, `gamma = 1 - beta1` and `alpha = 1 - beta2`, and scales the signs by a
learning rate, which only sets the unit of the second average.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from .binary_optimizer import BinaryOptimizer, Params
from .kernel import Scalar, as_tensors, average_all, run
from .rule import BinaryRule, Group, ParameterState, check_binary, flip, float_grads, use_foreach, zeros_like

GOLDEN = (math.sqrt(5) - 1) / 2


def diode_kernel(
    scratch: Tensor | None,
    flipped: Tensor | None,
    weight: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    sign_avg: Tensor,
    gamma: Scalar,
    alpha: Scalar,
) -> None:
    """The whole rule on one slice, in place."""
    exp_avg.add_(torch.sub(grad, exp_avg, out=scratch).mul_(gamma))
    sign_avg.add_(torch.sign(exp_avg, out=scratch).sub_(sign_avg).mul_(alpha))
    flip(weight, torch.mul(sign_avg, weight, out=scratch), 0.0, flipped)


def diode(
    params: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    sign_avgs: list[Tensor],
    flipped: Sequence[Tensor | None],
    *,
    gamma: Scalar,
    alpha: Scalar,
    foreach: bool = False,
    compiled: bool = False,
) -> None:
    """One step: m += gamma·(g - m), s += alpha·(sign(m) - s), flip where w·s > 0. All paths give the same bits."""
    if not foreach:
        scalars: Sequence[Scalar] = (gamma, alpha)
        scalars = as_tensors(scalars, params[0].device) if compiled else scalars
        for weight, grad, m, s, record in zip(params, grads, exp_avgs, sign_avgs, flipped, strict=True):
            run(diode_kernel, (weight, grad, m, s), record, scalars, compiled=compiled)
        return
    average_all(exp_avgs, grads, gamma)
    average_all(sign_avgs, torch._foreach_sign(exp_avgs), alpha)
    for weight, s, record in zip(params, sign_avgs, flipped, strict=True):
        flip(weight, s * weight, 0.0, record)


class DiodeRule(BinaryRule):
    """The rule of `Diode`, for use in a parameter group."""

    name = "diode"
    averages = ("gamma", "alpha")
    scheduled = ("gamma", "alpha")
    slots = ("exp_avg", "sign_avg", "flipped")
    defaults: ClassVar[Mapping[str, Any]] = {"gamma": 1e-2, "alpha": 1e-4, **BinaryRule.options, "warm_start": 1e-3}

    def initialize(self, parameter: Tensor, group: Group, state: ParameterState) -> None:
        """Create the gradient average at zero, and the average of signs against the weights, between 0 and warm_start.

        The paper draws it at random; here it is spread evenly, so that a run needs no generator to be repeated.
        """
        if "sign_avg" not in state:
            check_binary(parameter, self.name)
            count = torch.arange(parameter.numel(), dtype=torch.float64, device=parameter.device)
            against = (count * GOLDEN).frac_().mul_(-group["warm_start"]).view(parameter.shape)
            state["sign_avg"] = zeros_like(parameter).copy_(against * parameter)
        super().initialize(parameter, {**group, "warm_start": 0.0}, state)

    def apply(self, params: list[Tensor], grads: list[Tensor], states: list[ParameterState], group: Group) -> None:
        """Call `diode` with what the group says."""
        diode(
            params,
            float_grads(grads, group["maximize"]),
            [state["exp_avg"] for state in states],
            [state["sign_avg"] for state in states],
            [state.get("flipped") for state in states],
            gamma=group["gamma"],
            alpha=group["alpha"],
            foreach=use_foreach(group, params),
            compiled=group["compiled"],
        )

    def signal(self, state: ParameterState, group: Group) -> Tensor:  # noqa: ARG002
        """The average of signs."""
        average: Tensor = state["sign_avg"]
        return average

    def tau(self, group: Group, state: ParameterState) -> Scalar:  # noqa: ARG002
        """There is no threshold."""
        return 0.0


class Diode(BinaryOptimizer):
    """An average of signs of an average gradient, for parameters that are exactly ±1.

    `m += gamma·(g - m)`, `s += alpha·(sign(m) - s)`, and `w` becomes `-w` where `w·s > 0`; ties keep the weight.
    Scaling the loss changes nothing. Let `alpha` fall to 0 over the run, so that flips end before it.

    Args:
        params: binary parameters, or groups of them; any option below may differ by group.
        gamma: rate of the average of gradients, in [0, 1]; 1 minus the paper's beta1.
        alpha: rate of the average of signs, in [0, 1]; 1 minus the paper's beta2.
        options: warm_start (largest |s| at the start, where s is against the weights), track_flips, maximize,
            foreach, capturable, compiled, as in `Bop`.
    """

    rule = DiodeRule()

    def __init__(self, params: Params, gamma: Scalar = 1e-2, alpha: Scalar = 1e-4, **options: Any) -> None:
        super().__init__(params, gamma=gamma, alpha=alpha, **options)
