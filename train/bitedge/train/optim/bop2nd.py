"""Bop2ndOrder: Bop with the gradient average divided by the root of the average squared gradient.

Paper: Suarez-Ramirez et al., "A Bop and Beyond: A Second Order Optimizer for Binarized Neural Networks",
CVPR Workshops 2021, https://arxiv.org/abs/2104.05124. "Second order" means the second raw moment, not curvature.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from bitedge.train.errors import TrainError

from .binary_optimizer import BinaryOptimizer, Params
from .hyper import square_root
from .kernel import Scalar, as_tensors, average_all, run
from .moments import (
    Divisors,
    advance_corrections,
    advance_noise,
    average_moments,
    scalar_state,
    settled_noise,
    standardize,
    start_corrections,
)
from .rule import BinaryRule, Group, ParameterState, flip, float_grads, use_foreach, zeros_like


def bop2nd_kernel(
    scratch: Tensor | None,
    flipped: Tensor | None,
    weight: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    gamma: Scalar,
    sigma: Scalar,
    eps: Scalar,
    tau: Scalar,
    *divisors: Scalar,
) -> None:
    """The whole rule on one slice, in place."""
    average_moments(grad, exp_avg, exp_avg_sq, gamma, sigma, scratch)
    flip(weight, standardize(exp_avg, exp_avg_sq, divisors, eps, scratch).mul_(weight), tau, flipped)


def bop2nd(
    params: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    divisors: Sequence[Divisors],
    taus: Sequence[Scalar],
    flipped: Sequence[Tensor | None],
    *,
    gamma: Scalar,
    sigma: Scalar,
    eps: float,
    foreach: bool = False,
    compiled: bool = False,
) -> None:
    """One step: m += gamma·(g - m), v += sigma·(g² - v), then w becomes -w where w·s > tau; same bits on all paths."""
    if not foreach:
        common: Sequence[Scalar] = (gamma, sigma, eps)
        common = as_tensors(common, params[0].device) if compiled else common
        for weight, grad, m, v, pair, tau, record in zip(
            params, grads, exp_avgs, exp_avg_sqs, divisors, taus, flipped, strict=True
        ):
            run(bop2nd_kernel, (weight, grad, m, v), record, (*common, tau, *pair), compiled=compiled)
        return
    average_all(exp_avgs, grads, gamma)
    average_all(exp_avg_sqs, torch._foreach_mul(grads, grads), sigma)
    for weight, m, v, pair, tau, record in zip(params, exp_avgs, exp_avg_sqs, divisors, taus, flipped, strict=True):
        flip(weight, standardize(m, v, pair, eps, torch.empty_like(v)).mul_(weight), tau, record)


class Bop2ndRule(BinaryRule):
    """The rule of `Bop2ndOrder`, for use in a parameter group."""

    name = "bop2nd"
    scheduled = ("gamma", "sigma", "tau")
    slots = ("exp_avg", "exp_avg_sq", "noise", "seen", "seen_sq", "flipped")
    defaults: ClassVar[Mapping[str, Any]] = {
        "gamma": 1e-7,
        "sigma": 1e-3,
        "tau": 1e-6,
        "eps": 1e-10,
        "mode": "biased",
        "threshold": "absolute",
        **BinaryRule.options,
    }

    def initialize(self, parameter: Tensor, group: Group, state: ParameterState) -> None:
        """Create both averages, the variance of noise in the first, and in mode "adam" what both have seen.

        The averages start at zero, without noise. Only mode "adam" corrects s for that; for the others the variance
        starts where a constant gamma would keep it, so that the threshold is not too low before m and v are full.
        """
        super().initialize(parameter, group, state)
        if "exp_avg_sq" not in state:
            state["exp_avg_sq"] = zeros_like(parameter)
        if "noise" not in state:
            start = 0.0 if group["mode"] == "adam" else settled_noise(group["gamma"])
            state["noise"] = scalar_state(start, parameter, group)
        if group["mode"] == "adam":
            start_corrections(parameter, group, state, warm=group["warm_start"] > 0)

    def apply(self, params: list[Tensor], grads: list[Tensor], states: list[ParameterState], group: Group) -> None:
        """Call `bop2nd` with what the group says."""
        for state in states:
            advance_noise(state["noise"], group["gamma"])
            if group["mode"] == "adam":
                advance_corrections(state, group["gamma"], group["sigma"])
        bop2nd(
            params,
            float_grads(grads, group["maximize"]),
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [self.divisors(state, group) for state in states],
            [self.tau(group, state) for state in states],
            [state.get("flipped") for state in states],
            gamma=group["gamma"],
            sigma=group["sigma"],
            eps=group["eps"],
            foreach=use_foreach(group, params),
            compiled=group["compiled"],
        )

    def divisors(self, state: ParameterState, group: Group) -> Divisors:
        """What the mode divides m and v by."""
        if group["mode"] == "unbiased":
            rates = group["gamma"], group["sigma"]
            if any(isinstance(rate, float) and rate == 0 for rate in rates):
                raise TrainError("mode 'unbiased' divides by gamma and sigma, which must be above 0 at every step")
            return rates
        return (state["seen"], state["seen_sq"]) if group["mode"] == "adam" else ()

    def signal(self, state: ParameterState, group: Group) -> Tensor:
        """The standardized average s."""
        exp_avg, exp_avg_sq = state["exp_avg"], state["exp_avg_sq"]
        return standardize(exp_avg, exp_avg_sq, self.divisors(state, group), group["eps"], torch.empty_like(exp_avg))

    def tau(self, group: Group, state: ParameterState) -> Scalar:
        """The threshold in units of s; with `threshold="noise"` tau counts deviations of s under pure noise."""
        tau: Scalar = group["tau"]
        return tau if group["threshold"] == "absolute" else tau * self.deviation(group, state)

    def deviation(self, group: Group, state: ParameterState) -> Scalar:
        """The standard deviation of s if gradients had no direction: that of m, in the units of the mode.

        It is sqrt(gamma / (2 - gamma)) for a constant gamma. When gamma falls it stays above that, since m forgets old
        noise no faster than old gradients.
        """
        known = {name: state[name] for name in ("noise", "seen") if name in state}
        if not group["capturable"]:
            known = {name: value.item() for name, value in known.items()}
        deviation = square_root(known["noise"])
        if group["mode"] == "unbiased":
            deviation = deviation * square_root(group["sigma"]) / group["gamma"]
        return deviation / known["seen"] if group["mode"] == "adam" else deviation


class Bop2ndOrder(BinaryOptimizer):
    """Bop2ndOrder for parameters that are exactly ±1: flip `w` where `w·s > tau`; ties keep the weight.

    `m += gamma·(g - m)` and `v += sigma·(g² - v)` start at zero, and s is, by mode,

    - `"biased"`: `m / (sqrt(v) + eps)`;
    - `"unbiased"`: `(m / gamma) / (sqrt(v / sigma) + eps)` with the current gamma and sigma. This is Adam's correction
      of the first step, kept for ever; apart from eps it is the biased rule with `tau·gamma / sqrt(sigma)`;
    - `"adam"`: both averages divided by the weight of what they have seen, Adam's bias correction at every step.

    Scaling the loss changes nothing apart from eps. At the first step |s| is `gamma / sqrt(sigma)` (biased) or 1 for
    every weight: where that exceeds tau about half of all weights flip, whatever they were. To keep weights that were
    trained before, start warm with `warm_start=c`, which sets `m0 = -c·w`.

    Example:
        >>> from torch import nn
        >>> weight = nn.Parameter(torch.tensor([1.0, -1.0]))
        >>> optimizer = Bop2ndOrder([weight], gamma=1e-2, sigma=1e-2, tau=1e-3)
        >>> weight.grad = torch.tensor([1e-6, 1e-6])
        >>> optimizer.step()
        >>> weight.tolist()
        [-1.0, -1.0]

    Args:
        params: binary parameters, or groups of them; any option below may differ by group.
        gamma: adaptivity rate in [0, 1], the share of the newest gradient in m.
        sigma: standard rate in [0, 1], the share of the newest squared gradient in v.
        tau: threshold, at least 0.
        eps: added to the root of v.
        mode: `"biased"`, `"unbiased"` or `"adam"`.
        threshold: `"absolute"`, or `"noise"` to give tau in standard deviations of s under directionless gradients;
            the deviation is tracked with m, so that a gamma that falls to 0 ends all flips instead of freeing noise.
        warm_start: c of `m0 = -c·w`, in units of the gradient.
        track_flips: keep a record of the weights that ever flipped, one byte per weight, for the telemetry.
        maximize: climb instead of descend.
        foreach: use torch's multi-tensor operations; by default on a GPU only, since on a CPU blocks are faster.
        capturable: keep gamma, sigma and tau as tensors, so that CUDA graphs and compiled steps follow a schedule.
        compiled: run the rule through torch.compile, one pass over memory; starts slowly, needs a C++ compiler.
    """

    rule = Bop2ndRule()

    def __init__(
        self,
        params: Params,
        gamma: Scalar = 1e-7,
        sigma: Scalar = 1e-3,
        tau: Scalar = 1e-6,
        eps: float = 1e-10,
        mode: Literal["biased", "unbiased", "adam"] = "biased",
        *,
        threshold: Literal["absolute", "noise"] = "absolute",
        warm_start: float = 0.0,
        track_flips: bool = False,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        compiled: bool = False,
    ) -> None:
        super().__init__(
            params,
            gamma=gamma,
            sigma=sigma,
            tau=tau,
            eps=eps,
            mode=mode,
            threshold=threshold,
            warm_start=warm_start,
            track_flips=track_flips,
            maximize=maximize,
            foreach=foreach,
            capturable=capturable,
            compiled=compiled,
        )
