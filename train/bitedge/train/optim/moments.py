"""What is known about the averages of a rule beside their values: how much they have seen, and the noise they hold.

Both are single numbers per parameter, kept in double precision beside the averages and saved with them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .kernel import Scalar
from .rule import Group, ParameterState


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
    noise.mul_((1 - gamma) ** 2).add_(gamma**2)
