"""Bop: flip a binary weight when the average of its gradient asks for it long and loudly enough.

Paper: Helwegen et al., "Latent Weights Do Not Exist: Rethinking Binarized Neural Network Optimization",
NeurIPS 2019, https://arxiv.org/abs/1906.02107.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from .binary_optimizer import BinaryOptimizer, Params
from .kernel import Scalar, as_tensors, average_all, run
from .rule import BinaryRule, Group, ParameterState, flip, float_grads, use_foreach


def bop_kernel(
    scratch: Tensor | None,
    flipped: Tensor | None,
    weight: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    gamma: Scalar,
    tau: Scalar,
) -> None:
    """The whole rule on one slice, in place."""
    exp_avg.add_(torch.sub(grad, exp_avg, out=scratch).mul_(gamma))
    flip(weight, torch.mul(exp_avg, weight, out=scratch), tau, flipped)


def bop(
    params: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    flipped: Sequence[Tensor | None],
    *,
    gamma: Scalar,
    tau: Scalar,
    foreach: bool = False,
    compiled: bool = False,
) -> None:
    """One step: m += gamma·(g - m), then w becomes -w where w·m > tau. All paths give the same bits."""
    if not foreach:
        scalars: Sequence[Scalar] = (gamma, tau)
        scalars = as_tensors(scalars, params[0].device) if compiled else scalars
        for weight, grad, exp_avg, record in zip(params, grads, exp_avgs, flipped, strict=True):
            run(bop_kernel, (weight, grad, exp_avg), record, scalars, compiled=compiled)
        return
    average_all(exp_avgs, grads, gamma)
    margins = torch._foreach_mul(exp_avgs, params)
    for weight, margin, record in zip(params, margins, flipped, strict=True):
        flip(weight, margin, tau, record)


class BopRule(BinaryRule):
    """The rule of `Bop`, for use in a parameter group."""

    name = "bop"
    scheduled = ("gamma", "tau")
    slots = ("exp_avg", "flipped")
    defaults: ClassVar[Mapping[str, Any]] = {"gamma": 1e-4, "tau": 1e-8, **BinaryRule.options}

    def apply(self, params: list[Tensor], grads: list[Tensor], states: list[ParameterState], group: Group) -> None:
        """Call `bop` with what the group says."""
        bop(
            params,
            float_grads(grads, group["maximize"]),
            [state["exp_avg"] for state in states],
            [state.get("flipped") for state in states],
            gamma=group["gamma"],
            tau=group["tau"],
            foreach=use_foreach(group, params),
            compiled=group["compiled"],
        )

    def signal(self, state: ParameterState, group: Group) -> Tensor:  # noqa: ARG002
        """The gradient average itself."""
        average: Tensor = state["exp_avg"]
        return average

    def tau(self, group: Group, state: ParameterState) -> Scalar:  # noqa: ARG002
        """The threshold as given: it is in units of the gradient."""
        threshold: Scalar = group["tau"]
        return threshold


class Bop(BinaryOptimizer):
    """Bop for parameters that are exactly ±1: `m += gamma·(g - m)`, then `w` becomes `-w` where `w·m > tau`.

    Ties keep the weight. The threshold is in units of the gradient, so a scaled loss needs a scaled tau.
    With `m0 = 0` and a small tau about half of all weights flip at the first step; to keep weights that were
    trained before, start warm with `warm_start=c`, which sets `m0 = -c·w`.

    Example:
        >>> from torch import nn
        >>> weight = nn.Parameter(torch.tensor([1.0, -1.0]))
        >>> optimizer = Bop([weight], gamma=0.5, tau=0.1)
        >>> weight.grad = torch.tensor([1.0, 1.0])
        >>> optimizer.step()
        >>> weight.tolist()
        [-1.0, -1.0]

    Args:
        params: binary parameters, or groups of them; any option below may differ by group.
        gamma: adaptivity rate in [0, 1], the share of the newest gradient in the average.
        tau: threshold, at least 0.
        warm_start: c of `m0 = -c·w`, in units of the gradient.
        track_flips: keep a record of the weights that ever flipped, one byte per weight, for the telemetry.
        maximize: climb instead of descend.
        foreach: use torch's multi-tensor operations; by default on a GPU only, since on a CPU blocks are faster.
        capturable: keep gamma and tau as tensors, so that CUDA graphs and compiled steps follow a schedule.
        compiled: run the rule through torch.compile, one pass over memory; starts slowly, needs a C++ compiler.
    """

    rule = BopRule()

    def __init__(
        self,
        params: Params,
        gamma: Scalar = 1e-4,
        tau: Scalar = 1e-8,
        *,
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
            tau=tau,
            warm_start=warm_start,
            track_flips=track_flips,
            maximize=maximize,
            foreach=foreach,
            capturable=capturable,
            compiled=compiled,
        )
