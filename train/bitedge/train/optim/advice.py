"""Say in plain words when the threshold of a binary rule does nothing, or when it stops everything."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .moments import settled_noise
from .rule import Group

if TYPE_CHECKING:
    from .telemetry import LayerFlips

INERT = 1e-3
"""Below this share of held weights tau has no effect worth the name."""
FROZEN = 0.999
"""Above this share of held weights, and without a flip, training of the binary weights has ended."""


class OptimizerWarning(UserWarning):
    """The hyper-parameters of a binary optimizer work against what they are for."""


def advise(group: Group, tau: float, total: LayerFlips, deviation: float | None = None) -> dict[str, str]:
    """What is wrong, by kind, with what to do; `tau` and `deviation`, the noise held, are in the units of s."""
    if total.held >= FROZEN and total.flips == 0:
        return {
            "frozen": (
                f"binary weights are frozen: |s| <= tau = {tau:.3g} for {total.held:.1%} of them and none flipped; "
                f"lower tau below the median of |s|, {total.median:.3g}, or let tau rise later in the run"
            )
        }
    if total.held < INERT and tau > 0:
        text = (
            f"tau = {tau:.3g} has no effect: |s| <= tau for {total.held:.2%} of the binary weights, so every weight "
            f"follows the sign of its gradient average; to hold weights still raise tau towards the median of |s|, "
            f"{total.median:.3g}"
        )
        if group.get("mode") == "unbiased":
            gamma, sigma = float(group["gamma"]), float(group["sigma"])
            text += f"; mode 'unbiased' makes it act like tau = {tau * gamma / math.sqrt(sigma):.3g} in mode 'biased'"
        return {"inert": text}
    if deviation is not None and noise_is_free(group, tau, deviation):
        return {
            "noise": (
                f"tau = {tau:.3g} is below the noise that the gradient averages still hold, {deviation:.3g}: gamma "
                f"fell to {float(group['gamma']):.3g} faster than they forget, so weights flip for no reason; use "
                "threshold 'noise', which follows what is held, or let gamma fall more slowly"
            )
        }
    return {}


def noise_is_free(group: Group, tau: float, deviation: float) -> bool:
    """Whether an absolute tau would hold the noise of the present gamma, but not what is still held."""
    if group["threshold"] != "absolute":
        return False
    settled = math.sqrt(settled_noise(float(group["gamma"])))
    if group["mode"] == "unbiased":
        settled *= math.sqrt(float(group["sigma"])) / float(group["gamma"])
    return settled <= tau < deviation
