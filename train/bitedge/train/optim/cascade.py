"""CascadedBop2nd: flip a binary weight when the average of its standardized gradient average points along it.

It joins two filters. Bop2ndOrder (https://arxiv.org/abs/2104.05124) divides the average gradient by the root of the
average squared gradient, so that every weight speaks with the same voice whatever the size of its gradients; CEMA
(https://arxiv.org/abs/2303.02452) averages a second time instead of comparing with a threshold. The second average, of
about 1 / alpha steps, decides; when alpha falls to 0 the weights settle. Adam on latent weights with decay is the same
filter, with a real weight per bit that nothing needs afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from .binary_optimizer import BinaryOptimizer, Params
from .kernel import Scalar, as_tensors, average_all, run
from .moments import Divisors, advance_corrections, average_moments, standardize, start_corrections
from .rule import BinaryRule, Group, ParameterState, check_binary, flip, float_grads, use_foreach, zeros_like


def cascade_kernel(
    scratch: Tensor | None,
    flipped: Tensor | None,
    weight: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    signal_avg: Tensor,
    gamma: Scalar,
    sigma: Scalar,
    alpha: Scalar,
    eps: Scalar,
    *divisors: Scalar,
) -> None:
    """The whole rule on one slice, in place."""
    average_moments(grad, exp_avg, exp_avg_sq, gamma, sigma, scratch)
    signal = standardize(exp_avg, exp_avg_sq, divisors, eps, scratch)
    signal_avg.add_(signal.sub_(signal_avg).mul_(alpha))
    flip(weight, torch.mul(signal_avg, weight, out=scratch), 0.0, flipped)


def cascade(
    params: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    signal_avgs: list[Tensor],
    divisors: Sequence[Divisors],
    flipped: Sequence[Tensor | None],
    *,
    gamma: Scalar,
    sigma: Scalar,
    alpha: Scalar,
    eps: float,
    foreach: bool = False,
    compiled: bool = False,
) -> None:
    """One step: both moments of Bop2ndOrder, s = (m / a) / (sqrt(v / b) + eps), h += alpha·(s - h), flip where w·h > 0.

    All paths give the same bits.
    """
    if not foreach:
        common: Sequence[Scalar] = (gamma, sigma, alpha, eps)
        common = as_tensors(common, params[0].device) if compiled else common
        for weight, grad, m, v, h, pair, record in zip(
            params, grads, exp_avgs, exp_avg_sqs, signal_avgs, divisors, flipped, strict=True
        ):
            run(cascade_kernel, (weight, grad, m, v, h), record, (*common, *pair), compiled=compiled)
        return
    average_all(exp_avgs, grads, gamma)
    average_all(exp_avg_sqs, torch._foreach_mul(grads, grads), sigma)
    moments = zip(exp_avgs, exp_avg_sqs, divisors, strict=True)
    signals = [standardize(m, v, pair, eps, torch.empty_like(v)) for m, v, pair in moments]
    average_all(signal_avgs, signals, alpha)
    for weight, h, record in zip(params, signal_avgs, flipped, strict=True):
        flip(weight, h * weight, 0.0, record)


class CascadeRule(BinaryRule):
    """The rule of `CascadedBop2nd`, for use in a parameter group."""

    name = "cascade"
    averages = ("gamma", "alpha")
    scheduled = ("gamma", "sigma", "alpha")
    slots = ("exp_avg", "exp_avg_sq", "signal_avg", "seen", "seen_sq", "flipped")
    defaults: ClassVar[Mapping[str, Any]] = {
        "gamma": 1e-1,
        "sigma": 1e-3,
        "alpha": 1e-3,
        "eps": 1e-10,
        **BinaryRule.options,
    }

    def initialize(self, parameter: Tensor, group: Group, state: ParameterState) -> None:
        """Create the moments at zero and the deciding average, at zero or warm at `-warm_start·w`."""
        if "signal_avg" not in state:
            check_binary(parameter, self.name)
            state["signal_avg"] = zeros_like(parameter).sub_(parameter, alpha=group["warm_start"])
        super().initialize(parameter, {**group, "warm_start": 0.0}, state)
        if "exp_avg_sq" not in state:
            state["exp_avg_sq"] = zeros_like(parameter)
        start_corrections(parameter, group, state, warm=False)

    def apply(self, params: list[Tensor], grads: list[Tensor], states: list[ParameterState], group: Group) -> None:
        """Call `cascade` with what the group says."""
        for state in states:
            advance_corrections(state, group["gamma"], group["sigma"])
        cascade(
            params,
            float_grads(grads, group["maximize"]),
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [state["signal_avg"] for state in states],
            [(state["seen"], state["seen_sq"]) for state in states],
            [state.get("flipped") for state in states],
            gamma=group["gamma"],
            sigma=group["sigma"],
            alpha=group["alpha"],
            eps=group["eps"],
            foreach=use_foreach(group, params),
            compiled=group["compiled"],
        )

    def signal(self, state: ParameterState, group: Group) -> Tensor:  # noqa: ARG002
        """The average of the standardized average."""
        average: Tensor = state["signal_avg"]
        return average

    def tau(self, group: Group, state: ParameterState) -> Scalar:  # noqa: ARG002
        """There is no threshold."""
        return 0.0


class CascadedBop2nd(BinaryOptimizer):
    """Bop2ndOrder with a second average in the place of the threshold, for parameters that are exactly ±1.

    `m += gamma·(g - m)` and `v += sigma·(g² - v)`, both with Adam's correction, give `s = m / (sqrt(v) + eps)`;
    `h += alpha·(s - h)` averages that, and `w` becomes `-w` where `w·h > 0`. Scaling the loss changes nothing
    apart from eps. `alpha` is the one number that matters: let it fall linearly to 0 over the run, so that flips end.

    Example:
        >>> from torch import nn
        >>> weight = nn.Parameter(torch.tensor([1.0, -1.0]))
        >>> optimizer = CascadedBop2nd([weight], alpha=1e-2)
        >>> weight.grad = torch.tensor([1e-6, 1e-6])
        >>> optimizer.step()
        >>> weight.tolist()
        [-1.0, -1.0]

    Args:
        params: binary parameters, or groups of them; any option below may differ by group.
        gamma: rate of the average of gradients, in [0, 1].
        sigma: rate of the average of squared gradients, in [0, 1].
        alpha: rate of the deciding average, in [0, 1].
        eps: added to the root of v.
        options: warm_start (c of `h0 = -c·w`, in deviations of the gradient), track_flips, maximize, foreach,
            capturable, compiled, as in `Bop2ndOrder`.
    """

    rule = CascadeRule()

    def __init__(
        self,
        params: Params,
        gamma: Scalar = 1e-1,
        sigma: Scalar = 1e-3,
        alpha: Scalar = 1e-3,
        eps: float = 1e-10,
        **options: Any,
    ) -> None:
        super().__init__(params, gamma=gamma, sigma=sigma, alpha=alpha, eps=eps, **options)
