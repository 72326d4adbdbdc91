"""Bop2ndOrder: Bop with the gradient average divided by the root of the average squared gradient.

Paper: Suarez-Ramirez et al., "A Bop and Beyond: A Second Order Optimizer for Binarized Neural Networks",
CVPR Workshops 2021, https://arxiv.org/abs/2104.05124. "Second order" means the second raw moment, not curvature.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from .binary_optimizer import BinaryOptimizer, Params
from .hyper import square_root
from .kernel import Scalar, as_tensors, root, run
from .rule import BinaryRule, Group, ParameterState, flip, float_grads, use_foreach, zeros_like

Divisors = tuple[Scalar, Scalar] | None
"""What m and v are divided by before they are compared, or None for the biased rule."""


def biased_kernel(
    scratch: Tensor | None,
    flipped: Tensor | None,
    weight: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    gamma: Scalar,
    sigma: Scalar,
    tau: Scalar,
    eps: Scalar,
) -> None:
    """The rule with s = m / (sqrt(v) + eps) on one slice, in place."""
    exp_avg.add_(torch.sub(grad, exp_avg, out=scratch).mul_(gamma))
    exp_avg_sq.add_(torch.mul(grad, grad, out=scratch).sub_(exp_avg_sq).mul_(sigma))
    spread = root(exp_avg_sq, out=scratch).add_(eps)
    flip(weight, torch.div(exp_avg, spread, out=scratch).mul_(weight), tau, flipped)


def corrected_kernel(
    scratch: Tensor | None,
    flipped: Tensor | None,
    weight: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    gamma: Scalar,
    sigma: Scalar,
    tau: Scalar,
    eps: Scalar,
    divisor_m: Scalar,
    divisor_v: Scalar,
) -> None:
    """The rule with s = (m / a) / (sqrt(v / b) + eps) on one slice, in place."""
    exp_avg.add_(torch.sub(grad, exp_avg, out=scratch).mul_(gamma))
    exp_avg_sq.add_(torch.mul(grad, grad, out=scratch).sub_(exp_avg_sq).mul_(sigma))
    spread = root(torch.div(exp_avg_sq, divisor_v, out=scratch), out=scratch).add_(eps)
    flip(weight, torch.div(exp_avg / divisor_m, spread, out=scratch).mul_(weight), tau, flipped)


def bop2nd(
    params: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    divisors: Sequence[Divisors],
    flipped: Sequence[Tensor | None],
    *,
    gamma: Scalar,
    sigma: Scalar,
    tau: Scalar,
    eps: float,
    foreach: bool = False,
    compiled: bool = False,
) -> None:
    """One step: m += gamma·(g - m), v += sigma·(g² - v), then w becomes -w where w·s > tau; same bits on all paths."""
    if not foreach:
        common: Sequence[Scalar] = (gamma, sigma, tau, eps)
        common = as_tensors(common, params[0].device) if compiled else common
        for weight, grad, m, v, pair, record in zip(
            params, grads, exp_avgs, exp_avg_sqs, divisors, flipped, strict=True
        ):
            kernel = biased_kernel if pair is None else corrected_kernel
            run(kernel, (weight, grad, m, v), record, (*common, *(pair or ())), compiled=compiled)
        return
    moves = torch._foreach_sub(grads, exp_avgs)
    torch._foreach_mul_(moves, gamma)
    torch._foreach_add_(exp_avgs, moves)
    moves = torch._foreach_mul(grads, grads)
    torch._foreach_sub_(moves, exp_avg_sqs)
    torch._foreach_mul_(moves, sigma)
    torch._foreach_add_(exp_avg_sqs, moves)
    for weight, m, v, pair, record in zip(params, exp_avgs, exp_avg_sqs, divisors, flipped, strict=True):
        flip(weight, standardize(m, v, pair, eps).mul_(weight), tau, record)


def standardize(exp_avg: Tensor, exp_avg_sq: Tensor, divisors: Divisors, eps: float) -> Tensor:
    """The value s of the paper, as a new tensor."""
    if divisors is None:
        return exp_avg / root(exp_avg_sq, out=torch.empty_like(exp_avg_sq)).add_(eps)
    spread = exp_avg_sq / divisors[1]
    return (exp_avg / divisors[0]).div_(root(spread, out=spread).add_(eps))


class Bop2ndRule(BinaryRule):
    """The rule of `Bop2ndOrder`, for use in a parameter group."""

    name = "bop2nd"
    scheduled = ("gamma", "sigma", "tau")
    slots = ("exp_avg", "exp_avg_sq", "seen", "seen_sq", "flipped")
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
        """Create both averages and, in mode "adam", the weight of what each has seen.

        The average of a constant 1 from 0 is `1 - (1 - rate)^t` when the rate is constant, which is Adam's
        correction, and it stays right under a schedule. A warm start counts as seen.
        """
        super().initialize(parameter, group, state)
        if "exp_avg_sq" not in state:
            state["exp_avg_sq"] = zeros_like(parameter)
        if group["mode"] == "adam" and "seen" not in state:
            device = parameter.device if group["capturable"] else torch.device("cpu")
            state["seen"] = torch.tensor(float(group["warm_start"] > 0), dtype=torch.float64, device=device)
            state["seen_sq"] = torch.zeros((), dtype=torch.float64, device=device)

    def apply(self, params: list[Tensor], grads: list[Tensor], states: list[ParameterState], group: Group) -> None:
        """Call `bop2nd` with what the group says."""
        if group["mode"] == "adam":
            for state in states:
                state["seen"].add_((1 - state["seen"]) * group["gamma"])
                state["seen_sq"].add_((1 - state["seen_sq"]) * group["sigma"])
        bop2nd(
            params,
            float_grads(grads, group["maximize"]),
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [self.divisors(state, group) for state in states],
            [state.get("flipped") for state in states],
            gamma=group["gamma"],
            sigma=group["sigma"],
            tau=self.tau(group),
            eps=group["eps"],
            foreach=use_foreach(group, params),
            compiled=group["compiled"],
        )

    def divisors(self, state: ParameterState, group: Group) -> Divisors:
        """What the mode divides m and v by."""
        if group["mode"] == "unbiased":
            return group["gamma"], group["sigma"]
        return (state["seen"], state["seen_sq"]) if group["mode"] == "adam" else None

    def signal(self, state: ParameterState, group: Group) -> Tensor:
        """The standardized average s."""
        return standardize(state["exp_avg"], state["exp_avg_sq"], self.divisors(state, group), group["eps"])

    def tau(self, group: Group) -> Scalar:
        """The threshold in units of s; with `threshold="noise"` tau counts standard deviations of s under pure noise.

        Gradients without a direction give the biased s a deviation of sqrt(gamma / (2 - gamma)), about sqrt(gamma / 2);
        the unbiased s is sqrt(sigma) / gamma times that.
        """
        tau: Scalar = group["tau"]
        if group["threshold"] == "absolute":
            return tau
        unit = square_root(group["gamma"] / 2)
        if group["mode"] == "unbiased":
            unit = unit * square_root(group["sigma"]) / group["gamma"]
        return tau * unit


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
        gamma: adaptivity rate in (0, 1], the share of the newest gradient in m.
        sigma: standard rate in (0, 1], the share of the newest squared gradient in v.
        tau: threshold, at least 0.
        eps: added to the root of v.
        mode: `"biased"`, `"unbiased"` or `"adam"`.
        threshold: `"absolute"`, or `"noise"` to give tau in standard deviations of s under directionless gradients.
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
