"""The optimizer of a recipe with its schedules and telemetry, as one thing that the loop steps, saves and asks."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from bitedge.train.errors import TrainError
from bitedge.train.nn.parameter import is_binary
from bitedge.train.optim import (
    ModelOptimizer,
    OptimizerWarning,
    Schedules,
    Switch,
    Telemetry,
)
from bitedge.train.recipes.optimizer import LatentRecipe, OptimizerRecipe
from bitedge.train.recipes.recipe import Recipe
from bitedge.train.recipes.schedule import build_schedule


def build_optimizer(
    recipe: OptimizerRecipe, module: nn.Module, *, track_flips: bool = False, compiled: bool = False
) -> ModelOptimizer:
    """One optimizer for all parameters: the recipe's rule for the binary ones, its method for the rest."""
    fields: dict[str, Any] = recipe.fields()
    if recipe.binary:
        fields |= {"track_flips": track_flips, "compiled": compiled}
    if recipe.rule == "real" and any(is_binary(parameter) for parameter in module.parameters()):
        raise TrainError("optimizer.rule = 'real' trains no binary weights, but the network has some")
    return ModelOptimizer(
        module,
        rule=None if recipe.rule == "real" else recipe.rule,
        method=recipe.method,
        adam_eps=recipe.adam_eps,
        momentum=recipe.momentum,
        nesterov=recipe.nesterov,
        bias_factor=recipe.bias_factor,
        weight_decay=recipe.weight_decay,
        clip=recipe.clip,
        latent_decay=recipe.latent_decay if isinstance(recipe, LatentRecipe) else 0.0,
        **fields,
    )


def build_schedules(recipe: Recipe, optimizer: ModelOptimizer, steps_per_epoch: int) -> Schedules:
    """The schedules of every hyper-parameter, per step, and the switch of the rule if there is one."""
    chosen = recipe.optimizer
    fields = {name: build_schedule(value, steps_per_epoch) for name, value in chosen.scheduled().items()}
    switch = None
    if chosen.switch is not None:
        after = {"gamma": chosen.switch.gamma, "tau": chosen.switch.tau}
        later = {name: build_schedule(value, steps_per_epoch) for name, value in after.items()}
        switch = Switch(chosen.switch.epoch * steps_per_epoch, "bop", later)
    return Schedules(optimizer, fields, recipe.epochs * steps_per_epoch, switch=switch)


MOST_SKIPPED = 100
"""Steps in a row without finite gradients after which a run is given up."""


class Optimization:
    """Steps the optimizer of a recipe; hyper-parameters follow their schedules, one value per step.

    A step whose gradients are not all finite is left out: one of them would stay in the averages of its weight for
    ever. It is counted, the schedules wait, and a run of nothing else is stopped.
    With `watch`, one step of every so many is observed: its flips, what tau holds still, and what is wrong with that.
    """

    def __init__(self, recipe: Recipe, module: nn.Module, steps_per_epoch: int, *, watch: int = 0) -> None:
        compiled = recipe.execution.compile
        self.optimizer = build_optimizer(recipe.optimizer, module, track_flips=watch > 0, compiled=compiled)
        self.schedules = build_schedules(recipe, self.optimizer, steps_per_epoch)
        on_gpu = next(module.parameters()).device.type == "cuda"
        self.scaler = torch.amp.GradScaler(enabled=on_gpu and recipe.execution.precision == "fp16")
        self.clip_norm = recipe.optimizer.clip_norm
        self._parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        watched = watch > 0 and recipe.optimizer.binary
        self.telemetry = Telemetry(self.optimizer, every=watch) if watched else None
        self.observed = {"steps": 0.0, "flip_ratio": 0.0, "pi": 0.0}  # sums over the observed steps of an epoch
        self.skipped = 0  # steps without finite gradients, in all
        self.skipped_in_a_row = 0
        self.said: list[str] = []

    def backward(self, loss: Tensor) -> None:
        """Compute the gradients of a loss, scaled where half precision needs it."""
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]

    def step(self) -> bool:
        """Apply the gradients, forget them, go on to the hyper-parameters of the next step; False if it was skipped."""
        self.scaler.unscale_(self.optimizer)
        taken = self._finite()
        if taken:
            self._clip()
            self._apply()
            self.schedules.step()
        self.skipped += not taken
        self.skipped_in_a_row = 0 if taken else self.skipped_in_a_row + 1
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        if self.skipped_in_a_row >= MOST_SKIPPED:
            raise TrainError(
                f"the gradients of {MOST_SKIPPED} steps in a row were not finite: lower optimizer.lr, set "
                "optimizer.clip_norm, or use execution.precision = 'fp32'"
            )
        return taken

    def _finite(self) -> bool:
        """Whether every gradient is a finite number; with several processes they have been averaged, so all agree."""
        grads = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        # a sum is finite only if every term is, and takes a tenth of the time of a largest value or of isfinite
        sums = [grad.sum(dtype=torch.float32) for grad in grads]
        return bool(torch.isfinite(torch.stack(sums)).all()) if sums else True

    def _clip(self) -> None:
        if self.clip_norm is not None:
            real = [p for p in self._parameters if not is_binary(p)]
            torch.nn.utils.clip_grad_norm_(real, self.clip_norm)

    def _apply(self) -> None:
        latest = None if self.telemetry is None else self.telemetry.latest
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OptimizerWarning)  # `advice` says it, once, in the log of the run
            self.scaler.step(self.optimizer)
        if self.telemetry is not None and self.telemetry.latest is not latest and self.telemetry.latest is not None:
            total = self.telemetry.latest.total
            new = {"steps": 1.0, "flip_ratio": total.flip_ratio, "pi": total.pi}
            self.observed = {name: value + new[name] for name, value in self.observed.items()}

    def epoch_figures(self) -> dict[str, Any]:
        """What the epoch did to the binary weights, and the hyper-parameters of its last step; starts a new sum.

        Flips are means over the observed steps; the shares of held and never-flipped weights, and the figures of each
        layer, are those of the last observed step.
        """
        figures: dict[str, Any] = dict(self.schedules.values(max(0, self.schedules.current - 1)))
        report = None if self.telemetry is None else self.telemetry.latest
        if report is not None and self.observed["steps"]:
            means = {name: self.observed[name] / self.observed["steps"] for name in ("flip_ratio", "pi")}
            layers = {layer.name: layer.as_dict() for layer in report.layers}
            figures = {**report.total.as_dict(), **means, "noise_flip_ratio": report.noise, **figures, "layers": layers}
        self.observed = dict.fromkeys(self.observed, 0.0)
        return figures | {"skipped_steps": self.skipped}

    def advice(self) -> list[str]:
        """Advice of the telemetry that was not given before."""
        report = None if self.telemetry is None else self.telemetry.latest
        new = [text for text in (report.advice if report else ()) if text.split(":")[0] not in self.said]
        self.said += [text.split(":")[0] for text in new]
        return new

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next step and the next figures depend on."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "schedules": self.schedules.state_dict(),
            "scaler": self.scaler.state_dict(),
            "observed": self.observed,
            "said": self.said,
            "skipped": [self.skipped, self.skipped_in_a_row],
            "telemetry": None if self.telemetry is None else self.telemetry.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state; schedules last, for they write into the optimizer's groups."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        self.schedules.load_state_dict(state["schedules"])
        self.observed, self.said = dict(state["observed"]), list(state["said"])
        self.skipped, self.skipped_in_a_row = state["skipped"]
        if self.telemetry is not None and state["telemetry"] is not None:
            self.telemetry.load_state_dict(state["telemetry"])
