"""An exponential moving average of the real parameters, used for evaluation and for the published weights.

Polyak and Juditsky, "Acceleration of Stochastic Approximation by Averaging", 1992; with a constant decay as in
Tarvainen and Valpola, https://arxiv.org/abs/1703.01780. Binary weights have no average: the last ones are used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from bitedge.train.nn.parameter import is_binary


class RealAverage:
    """`average += (1 - decay)·(parameter - average)` after every step; the first steps use a smaller decay.

    At step t the decay is at most `(1 + t) / (10 + t)`, so that the average forgets where training started.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay = decay
        self.steps = 0
        self._parameters = {name: p for name, p in module.named_parameters() if not is_binary(p) and p.requires_grad}
        self.values = {name: p.detach().clone() for name, p in self._parameters.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Take in the parameters after a step."""
        self.steps += 1
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        torch._foreach_lerp_(list(self.values.values()), list(self._parameters.values()), 1 - decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Put the averages into the module for a while, then the parameters back."""
        with torch.no_grad():
            kept = {name: parameter.detach().clone() for name, parameter in self._parameters.items()}
            self._fill(self.values)
        try:
            yield
        finally:
            with torch.no_grad():
                self._fill(kept)

    def _fill(self, values: dict[str, Tensor]) -> None:
        for name, parameter in self._parameters.items():
            parameter.copy_(values[name])

    def state_dict(self) -> dict[str, object]:
        """Return the averages and the number of steps in them."""
        return {"steps": self.steps, "values": self.values}

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Go on from saved averages."""
        values = state["values"]
        assert isinstance(values, dict)
        self.steps = int(str(state["steps"]))
        for name, value in self.values.items():
            value.copy_(values[name])
