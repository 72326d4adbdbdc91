"""One optimizer for a whole model: a binary rule for what is binary; Adam, AdamW or SGD for the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, overload

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bitedge.train.errors import TrainError
from bitedge.train.nn.parameter import is_binary

from .claims import Named, check_claims, check_group, latent_weights, named_parameters, split
from .registry import find_rule
from .rule import Group
from .state import keep_dtypes

METHODS = {"adam": ("adam", "latent"), "adamw": ("adam", "latent"), "sgd": ("sgd", "latent_sgd")}
"""The rules of real parameters and of latent weights, by method."""

ModelParams: TypeAlias = nn.Module | Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]]


class ModelOptimizer(Optimizer):
    """One torch optimizer for binary and real parameters, so that schedulers, scalers and checkpoints see one object.

    Every parameter group names its `rule`, a row of `bitedge.train.optim.RULES`: "bop" or "bop2nd" for parameters
    declared binary, "latent" for the weights of layers with `latent = True`, "adam" for all others.

    Example:
        >>> from bitedge.train.nn.parameter import BinaryParameter
        >>> weight, bias = BinaryParameter(torch.ones(4)), nn.Parameter(torch.zeros(4))
        >>> optimizer = ModelOptimizer([("weight", weight), ("bias", bias)], rule="bop", gamma=1e-3, tau=1e-6, lr=1e-2)
        >>> [(group["rule"], group["param_names"]) for group in optimizer.param_groups]
        [('bop', ['weight']), ('adam', ['bias'])]

    Args:
        params: a module; or parameters, or (name, parameter) pairs; or groups as dictionaries with "params" (any of the
            former), "rule", and fields of that rule.
        rule: the rule of the binary parameters, "bop" or "bop2nd"; "latent" if the model has latent weights and
            no binary ones. None: by what the model has, "bop2nd" or "latent".
        method: what trains real parameters and latent weights: "adam", "adamw" or "sgd".
        lr, betas, adam_eps, momentum, nesterov: theirs.
        bias_factor: of "sgd", factor of the learning rate of norms and biases (below two dimensions).
        weight_decay: of real weights; norms and biases (below two dimensions) are spared. Coupled, an L2 term of the
            loss, except for "adamw".
        clip, latent_decay: bound and weight decay of the latent weights.
        latent: further latent weights, beside those of layers with `latent = True` when a module is given.
        model: with explicit groups, the module whose every trainable parameter has to be claimed by one of them.
        maximize, foreach, capturable: as torch's, for all rules.
        fields: fields of the binary rule: gamma, tau, and for "bop2nd" sigma, eps, mode, threshold; warm_start,
            track_flips, compiled. See `Bop` and `Bop2ndOrder`.
    """

    def __init__(
        self,
        params: ModelParams,
        *,
        rule: str | None = None,
        method: str = "adam",
        lr: float | Tensor = 1e-2,
        betas: tuple[float, float] = (0.9, 0.999),
        adam_eps: float = 1e-7,
        momentum: float = 0.9,
        nesterov: bool = False,
        bias_factor: float = 1.0,
        weight_decay: float = 0.0,
        clip: float = 1.0,
        latent_decay: float = 0.0,
        latent: Iterable[Tensor] = (),
        model: nn.Module | None = None,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        **fields: Any,
    ) -> None:
        common = {"maximize": maximize, "foreach": foreach, "capturable": capturable}
        if method not in METHODS:
            raise TrainError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
        adam = {"lr": lr, "betas": betas, "eps": adam_eps, "decoupled": method == "adamw", **common}
        real = {"lr": lr, "momentum": momentum, "nesterov": nesterov, **common} if method == "sgd" else adam
        if method != "sgd" and (nesterov or bias_factor != 1):
            raise TrainError(f"nesterov and bias_factor belong to method 'sgd', not to {method!r}")
        real_rule, latent_rule = METHODS[method]
        model = params if isinstance(params, nn.Module) else model
        items: Any = params if isinstance(params, nn.Module) else list(params)
        groups: list[Group]
        if isinstance(items, list) and items and isinstance(items[0], dict):
            if fields or rule is not None:
                raise TrainError("with explicit groups, give the rule and its fields in each group")
            groups = [explicit_group(item, {"adam": adam, "latent": adam}, common) for item in items]
        else:
            named = named_parameters(items)
            latent = [*latent, *(latent_weights(model) if model is not None else ())]
            rule = choose_rule(rule, named, latent)
            groups = split(
                named,
                latent,
                {
                    "binary": {"rule": rule, **fields, **common},
                    "latent": {"rule": latent_rule, "clip": clip, "weight_decay": latent_decay, **real},
                    "real": {"rule": real_rule, "weight_decay": weight_decay, **real},
                },
                bias_factor,
            )
            if fields and not any(group["rule"] == rule for group in groups):
                raise TrainError(f"fields {', '.join(fields)} belong to rule {rule!r}, which has no parameter")
        check_claims(groups, named_parameters(model) if model is not None else [])
        # torch's OneCycleLR and CyclicLR look for one of these in the defaults; they drive the real groups
        super().__init__(groups, {"momentum": momentum} if method == "sgd" else {"betas": betas})

    def add_param_group(self, param_group: Group) -> None:
        """Add a group with "params" and "rule"; unknown fields, wrong values and wrong parameters are errors."""
        rule = find_rule(param_group.get("rule", "adam"))
        unknown = sorted(set(param_group) - {"params", "rule", "param_names", *rule.defaults})
        if unknown:
            raise TrainError(
                f"rule {rule.name!r} has no field {', '.join(unknown)}: it takes {', '.join(rule.defaults)}"
            )
        super().add_param_group({"rule": rule.name, **param_group, "params": named_parameters(param_group["params"])})
        check_group(self.param_groups[-1])
        rule.prepare(self.param_groups[-1])

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickled or loaded optimizer; fields that an older version did not have get their defaults."""
        super().__setstate__(state)
        for group in self.param_groups:
            for key, value in find_rule(group["rule"]).defaults.items():
                group.setdefault(key, value)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state, without torch's cast to the type of the parameters: averages stay float32."""
        super().load_state_dict(state_dict)
        keep_dtypes(self, state_dict)

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update every group by its rule; returns the loss of the closure, if there is one."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            find_rule(group["rule"]).update(group, self.state)
        return loss


def choose_rule(rule: str | None, named: Named, latent: Iterable[Tensor]) -> str:
    """The rule of the parameters that a model binarizes, checked against what the model has."""
    has_binary = any(is_binary(parameter) for _, parameter in named)
    has_latent = any(True for _ in latent)
    if rule is None:
        return "latent" if has_latent and not has_binary else "bop2nd"
    if find_rule(rule).binary and not has_binary:
        raise TrainError(f"rule {rule!r} is for binary parameters, but none is declared binary")
    if rule == "latent" and not has_latent:
        raise TrainError("rule 'latent' is for latent weights, but no layer has any: build it with latent=True")
    if not find_rule(rule).binary and has_binary:
        raise TrainError(f"rule {rule!r} claims no binary parameter, but the model has some: choose 'bop' or 'bop2nd'")
    return rule


def explicit_group(item: dict[str, Any], adam: dict[str, dict[str, Any]], common: dict[str, Any]) -> Group:
    """A group as the caller wrote it, with the optimizer's options where it has none of its own."""
    if "rule" not in item or "params" not in item:
        raise TrainError(f"a group needs 'params' and 'rule', got {', '.join(item) or 'nothing'}")
    return {**common, **adam.get(item["rule"], {}), **item, "params": named_parameters(item["params"])}
