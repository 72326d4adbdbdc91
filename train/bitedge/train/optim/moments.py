"""Both moments of the gradient and their quotient, which the second-order rules share; and what is known about them.

How much the averages have seen and the noise that they hold are single numbers per parameter, kept in double precision
beside the averages and saved with them.
"""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor

from .kernel import Scalar, root
from .rule import Group, ParameterState

Divisors: TypeAlias = tuple[Scalar, ...]
"""What m and v are divided by before they are compared, or nothing for the biased rule."""


def average_moments(
    grad: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, gamma: Scalar, sigma: Scalar, scratch: Tensor | None
) -> None:
    """Advance both moments in place: m += gamma·(g - m), v += sigma·(g² - v)."""
    exp_avg.add_(torch.sub(grad, exp_avg, out=scratch).mul_(gamma))
    exp_avg_sq.add_(torch.mul(grad, grad, out=scratch).sub_(exp_avg_sq).mul_(sigma))


def standardize(exp_avg: Tensor, exp_avg_sq: Tensor, divisors: Divisors, eps: Scalar, scratch: Tensor | None) -> Tensor:
    """The value s of Bop2ndOrder, written to `scratch` if given: m / (sqrt(v) + eps), or (m / a) / (sqrt(v / b) + eps).

    Outside of a compiler `scratch` must be given: only then is the root correctly rounded.
    """
    if divisors:
        exp_avg = exp_avg / divisors[0]
        exp_avg_sq = torch.div(exp_avg_sq, divisors[1], out=scratch)
    return torch.div(exp_avg, root(exp_avg_sq, out=scratch).add_(eps), out=scratch)


def scalar_state(value: Scalar, parameter: Tensor, group: Group) -> Tensor:
    """A number in the state of a parameter: on the CPU, or beside the parameter when the step is captured there."""
    device = parameter.device if group["capturable"] else torch.device("cpu")
    return torch.as_tensor(value, dtype=torch.float64, device=device).clone()


def start_corrections(parameter: Tensor, group: Group, state: ParameterState, *, warm: bool) -> None:
    """Create the weights of what both moments have seen; a warm first moment has seen everything."""
    if "seen" not in state:
        state["seen"] = scalar_state(float(warm), parameter, group)
        state["seen_sq"] = scalar_state(0.0, parameter, group)


def advance_corrections(state: ParameterState, gamma: Scalar, sigma: Scalar) -> None:
    """One step of the average of a constant 1 from 0: `1 - (1 - rate)^t` for a constant rate, Adam's correction.

    Unlike that formula it stays right when the rate follows a schedule.
    """
    state["seen"].add_((1 - state["seen"]) * gamma)
    state["seen_sq"].add_((1 - state["seen_sq"]) * sigma)


def settled_noise(gamma: Scalar) -> Scalar:
    """The variance of an average of noise of variance 1, long after gamma was last changed: gamma / (2 - gamma)."""
    return gamma / (2 - gamma)


def advance_noise(noise: Tensor, gamma: Scalar) -> None:
    """One step of that variance, exact for any schedule of gamma: `n` becomes `(1 - gamma)²·n + gamma²`, in place.

    When gamma falls quickly the average still holds the noise of the larger gamma, and so does n.
    """
    if isinstance(gamma, Tensor):
        noise.mul_((1 - gamma) ** 2).add_(gamma**2)
    else:  # Python's own arithmetic is quicker than three calls for one number
        noise.fill_((1 - gamma) ** 2 * noise.item() + gamma**2)
