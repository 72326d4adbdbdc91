"""Cema: flip a binary weight when the average of its average gradient points along it.

Paper: Quist, Li and van Gemert, "Understanding weight-magnitude hyperparameters in training binary networks",
ICLR 2023, https://arxiv.org/abs/2303.02452: latent weights act as a second-order low-pass filter of the gradient, which
two cascaded averages give without latent weights. There is no threshold in the paper; `tau` is 0 by default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from .binary_optimizer import BinaryOptimizer, Params
from .kernel import Scalar, as_tensors, average_all, run
from .rule import BinaryRule, Group, ParameterState, flip, float_grads, use_foreach, zeros_like


def cema_kernel(
    scratch: Tensor | None,
    flipped: Tensor | None,
    weight: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_avg: Tensor,
    gamma: Scalar,
    sigma: Scalar,
    tau: Scalar,
) -> None:
    """The whole rule on one slice, in place."""
    exp_avg.add_(torch.sub(grad, exp_avg, out=scratch).mul_(gamma))
    exp_avg_avg.add_(torch.sub(exp_avg, exp_avg_avg, out=scratch).mul_(sigma))
    flip(weight, torch.mul(exp_avg_avg, weight, out=scratch), tau, flipped)


def cema(
    params: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_avgs: list[Tensor],
    flipped: Sequence[Tensor | None],
    *,
    gamma: Scalar,
    sigma: Scalar,
    tau: Scalar,
    foreach: bool = False,
    compiled: bool = False,
) -> None:
    """One step: m += gamma·(g - m), h += sigma·(m - h), flip where w·h > tau. All paths give the same bits."""
    if not foreach:
        scalars: Sequence[Scalar] = (gamma, sigma, tau)
        scalars = as_tensors(scalars, params[0].device) if compiled else scalars
        for weight, grad, m, h, record in zip(params, grads, exp_avgs, exp_avg_avgs, flipped, strict=True):
            run(cema_kernel, (weight, grad, m, h), record, scalars, compiled=compiled)
        return
    average_all(exp_avgs, grads, gamma)
    average_all(exp_avg_avgs, exp_avgs, sigma)
    for weight, h, record in zip(params, exp_avg_avgs, flipped, strict=True):
        flip(weight, h * weight, tau, record)


class CemaRule(BinaryRule):
    """The rule of `Cema`, for use in a parameter group."""

    name = "cema"
    averages = ("gamma", "sigma")
    scheduled = ("gamma", "sigma", "tau")
    slots = ("exp_avg", "exp_avg_avg", "flipped")
    defaults: ClassVar[Mapping[str, Any]] = {"gamma": 1e-1, "sigma": 1e-3, "tau": 0.0, **BinaryRule.options}

    def initialize(self, parameter: Tensor, group: Group, state: ParameterState) -> None:
        """Create both averages; a warm start goes into both, so that neither pulls the other back at once."""
        super().initialize(parameter, group, state)
        if "exp_avg_avg" not in state:
            state["exp_avg_avg"] = zeros_like(parameter)
            if group["warm_start"]:
                state["exp_avg_avg"].sub_(parameter, alpha=group["warm_start"])

    def apply(self, params: list[Tensor], grads: list[Tensor], states: list[ParameterState], group: Group) -> None:
        """Call `cema` with what the group says."""
        cema(
            params,
            float_grads(grads, group["maximize"]),
            [state["exp_avg"] for state in states],
            [state["exp_avg_avg"] for state in states],
            [state.get("flipped") for state in states],
            gamma=group["gamma"],
            sigma=group["sigma"],
            tau=group["tau"],
            foreach=use_foreach(group, params),
            compiled=group["compiled"],
        )

    def signal(self, state: ParameterState, group: Group) -> Tensor:  # noqa: ARG002
        """The average of the average."""
        average: Tensor = state["exp_avg_avg"]
        return average

    def tau(self, group: Group, state: ParameterState) -> Scalar:  # noqa: ARG002
        """The threshold as given: it is in units of the gradient."""
        threshold: Scalar = group["tau"]
        return threshold


class Cema(BinaryOptimizer):
    """Cascaded averages for parameters that are exactly ±1: flip `w` where `w·h > tau`; ties keep the weight.

    `m += gamma·(g - m)` smooths the gradient, `h += sigma·(m - h)` smooths m. As in the paper, keep gamma
    constant and let sigma fall linearly to 0 over the run: flips end, and the deployed network is settled.

    Args:
        params: binary parameters, or groups of them; any option below may differ by group.
        gamma: rate of the first average, in [0, 1].
        sigma: rate of the second average, in [0, 1].
        tau: threshold, at least 0.
        options: warm_start, track_flips, maximize, foreach, capturable, compiled, as in `Bop`.
    """

    rule = CemaRule()

    def __init__(
        self, params: Params, gamma: Scalar = 1e-1, sigma: Scalar = 1e-3, tau: Scalar = 0.0, **options: Any
    ) -> None:
        super().__init__(params, gamma=gamma, sigma=sigma, tau=tau, **options)
