"""Watch a binary optimizer: how many weights flip, how many the threshold holds still, and whether that makes sense.

Only the steps that are asked for cost anything: before such a step the signs are copied, after it they are compared,
and s is computed once more from the state. All other steps run the optimizer as it is.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from bitedge.train.errors import TrainError

from .advice import OptimizerWarning, advise
from .registry import rule_of
from .rule import BinaryRule, Group

SAMPLE = 65_536
"""Weights of a layer that the median of |s| looks at."""


def flip_measure(ratio: float) -> float:
    """The paper's pi_t = ln(flips / weights + e^-9); it cannot tell ratios much below 1e-4 apart."""
    return math.log(ratio + math.exp(-9))


def noise_flip_ratio(gamma: float, second: float = 1.0) -> float:
    """The share of weights that flip per step when gradients have no direction and tau is 0.

    It is arccos(r) / pi with r the correlation of the deciding average from one step to the next: `1 - gamma` for one
    average, and for a second one of that average, with remainders a and b, `(a + b) / (1 + a·b)`.
    """
    a, b = 1.0 - gamma, 1.0 - second
    return math.acos(min(1.0, (a + b) / (1.0 + a * b))) / math.pi


@dataclass(frozen=True)
class LayerFlips:
    """What one step did to the weights of one layer, or of all of them."""

    name: str
    weights: int
    flips: int
    within_tau: int
    """Weights with |s| <= tau, which cannot flip."""
    never_flipped: int | None
    """Weights that no step has flipped so far; None when the optimizer does not record it."""
    median: float
    """The median of |s|, from a sample."""

    @property
    def flip_ratio(self) -> float:
        """Flips per weight."""
        return self.flips / self.weights

    @property
    def pi(self) -> float:
        """The paper's logarithmic flip ratio."""
        return flip_measure(self.flip_ratio)

    @property
    def held(self) -> float:
        """The share of weights with |s| <= tau."""
        return self.within_tau / self.weights

    def as_dict(self) -> dict[str, float]:
        """The figures by name, for a log."""
        figures = {"flip_ratio": self.flip_ratio, "pi": self.pi, "within_tau": self.held, "median_s": self.median}
        if self.never_flipped is not None:
            figures["never_flipped"] = self.never_flipped / self.weights
        return figures


@dataclass(frozen=True)
class Report:
    """One observed step: every layer, all together, the hyper-parameters of that step, and advice if there is any."""

    step: int
    layers: tuple[LayerFlips, ...]
    total: LayerFlips
    hyper: dict[str, float]
    """The scheduled fields of every group, and `tau_s`, the threshold in the units of s."""
    noise: float
    """What `noise_flip_ratio` expects of gradients without a direction."""
    advice: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, float]:
        """A flat record: totals, hyper-parameters, and `<layer>/<figure>` for each layer."""
        record = {**self.total.as_dict(), "noise_flip_ratio": self.noise, **self.hyper}
        for layer in self.layers:
            record |= {f"{layer.name}/{key}": value for key, value in layer.as_dict().items()}
        return record


class Telemetry:
    """Observe the binary parameters of an optimizer at chosen steps.

    Example:
        >>> from torch import nn, ones
        >>> from bitedge.train.optim import Bop
        >>> weight = nn.Parameter(ones(4))
        >>> optimizer = Bop([("conv.weight", weight)], gamma=1.0, tau=0.5)
        >>> telemetry = Telemetry(optimizer, every=1)
        >>> weight.grad = torch.tensor([1.0, -1.0, 0.1, 2.0])
        >>> optimizer.step()
        >>> telemetry.latest.total.flip_ratio, telemetry.latest.total.held
        (0.5, 0.25)

    Args:
        optimizer: `ModelOptimizer`, `Bop` or `Bop2ndOrder`.
        every: observe the first step and then every so many; 0 observes only the steps announced by `ask()`.
        never_flipped: let the optimizer record which weights ever flipped (a byte per weight, a few percent of a step).
        patience: reports in a row that must agree before a warning is given; each warning is given once.
    """

    def __init__(self, optimizer: Optimizer, *, every: int = 0, never_flipped: bool = False, patience: int = 3) -> None:
        if every < 0 or patience < 1:
            raise TrainError(f"every must be at least 0 and patience at least 1, got {every} and {patience}")
        self.optimizer = optimizer
        self.every = every
        self.patience = patience
        self.steps = 0
        self.latest: Report | None = None
        self._asked = False
        self._before: dict[Tensor, Tensor] | None = None
        self._streaks: dict[str, int] = {}
        groups = [group for group, _ in self._binary_groups()]
        if not groups:
            raise TrainError("telemetry needs an optimizer with binary parameters")
        if never_flipped:
            for group in groups:
                group["track_flips"] = True
        self._hooks = (
            optimizer.register_step_pre_hook(self._before_step),
            optimizer.register_step_post_hook(self._after_step),
        )

    def ask(self) -> None:
        """Observe the next step, whatever `every` says."""
        self._asked = True

    def close(self) -> None:
        """Stop watching."""
        for hook in self._hooks:
            hook.remove()

    def state_dict(self) -> dict[str, Any]:
        """What the next reports depend on, as plain data: step, last report, how long each advice has held."""
        latest = None if self.latest is None else asdict(self.latest)
        return {"steps": self.steps, "latest": latest, "streaks": dict(self._streaks)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.steps, self._streaks = state["steps"], dict(state["streaks"])
        self.latest = None
        if state["latest"] is not None:
            layers = tuple(LayerFlips(**layer) for layer in state["latest"]["layers"])
            total, advice = LayerFlips(**state["latest"]["total"]), tuple(state["latest"]["advice"])
            self.latest = Report(**{**state["latest"], "layers": layers, "total": total, "advice": advice})

    def _binary_groups(self) -> Iterator[tuple[Group, BinaryRule]]:
        for group in self.optimizer.param_groups:
            rule = rule_of(self.optimizer, group)
            if isinstance(rule, BinaryRule):
                yield group, rule

    def _before_step(self, *_: Any) -> None:
        self._before = None
        if self._asked or (self.every and self.steps % self.every == 0):
            parameters = [parameter for group, _ in self._binary_groups() for parameter in group["params"]]
            self._before = {parameter: parameter.detach() > 0 for parameter in parameters}

    @torch.no_grad()
    def _after_step(self, *_: Any) -> None:
        self.steps += 1
        if self._before is None:
            return
        self._asked = False
        layers: list[LayerFlips] = []
        hyper: dict[str, float] = {}
        deviation: float | Tensor | None = None
        for group, rule in self._binary_groups():
            names = group.get("param_names") or [str(len(layers) + i) for i in range(len(group["params"]))]
            for name, parameter in zip(names, group["params"], strict=True):
                state = self.optimizer.state.get(parameter)
                if state:
                    tau, signal = rule.tau(group, state), rule.signal(state, group).abs()
                    layers.append(measure(name, self._before[parameter], parameter, signal, tau, state.get("flipped")))
                    hyper["tau_s"], deviation = float(tau), rule.deviation(group, state)
        self._before = None
        if not layers:
            return
        for group in self.optimizer.param_groups:
            rule_or_none = rule_of(self.optimizer, group)
            hyper |= {key: float(group[key]) for key in (rule_or_none.scheduled if rule_or_none else ())}
        first_group, first_rule = next(self._binary_groups())
        total = combine(layers)
        # after the very first step |s| is the same for all weights, which says nothing about tau
        held = None if deviation is None else float(deviation)
        advice = self._persistent(advise(first_group, hyper["tau_s"], total, held) if self.steps > 1 else {})
        noise = noise_flip_ratio(*(hyper[name] for name in first_rule.averages))
        self.latest = Report(self.steps - 1, tuple(layers), total, hyper, noise, tuple(advice.values()))

    def _persistent(self, advice: dict[str, str]) -> dict[str, str]:
        """The advice that has held for `patience` reports; warns when one gets there."""
        self._streaks = {kind: self._streaks.get(kind, 0) + 1 for kind in advice}
        for kind, text in advice.items():
            if self._streaks[kind] == self.patience:
                warnings.warn(text, OptimizerWarning, stacklevel=4)
        return {kind: text for kind, text in advice.items() if self._streaks[kind] >= self.patience}


def measure(
    name: str, before: Tensor, parameter: Tensor, magnitude: Tensor, tau: float | Tensor, flipped: Tensor | None
) -> LayerFlips:
    """The figures of one parameter: signs before, weights after, |s| and the record of flips."""
    weights = parameter.numel()
    sample = magnitude.flatten()[:: max(1, weights // SAMPLE)]
    return LayerFlips(
        name=name,
        weights=weights,
        flips=int((before != (parameter > 0)).sum()),
        within_tau=int((magnitude <= tau).sum()),
        never_flipped=None if flipped is None else weights - int(flipped.sum()),
        median=float(sample.median()),
    )


def combine(layers: list[LayerFlips]) -> LayerFlips:
    """All layers as one; its median is the mean of theirs, weighted."""
    weights = sum(layer.weights for layer in layers)
    records = [layer.never_flipped for layer in layers if layer.never_flipped is not None]
    return LayerFlips(
        name="all",
        weights=weights,
        flips=sum(layer.flips for layer in layers),
        within_tau=sum(layer.within_tau for layer in layers),
        never_flipped=sum(records) if len(records) == len(layers) else None,
        median=sum(layer.median * layer.weights for layer in layers) / weights,
    )
