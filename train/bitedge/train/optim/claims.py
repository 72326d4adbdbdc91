"""Who updates which parameter: binary ones by a binary rule, latent ones by latent Adam, the rest by Adam.

A parameter is binary because its layer declared it so (`bitedge.train.nn.parameter`), never because of its name, and a
weight is latent because its layer says `latent = True`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, nn

from bitedge.train.errors import TrainError
from bitedge.train.nn.parameter import is_binary

from .registry import find_rule
from .rule import Group

Named = list[tuple[str, Tensor]]


def named_parameters(params: nn.Module | Iterable[Tensor] | Iterable[tuple[str, Tensor]]) -> Named:
    """Trainable parameters with their names (positions where they have none), each once."""
    if isinstance(params, nn.Module):
        return [(name, parameter) for name, parameter in params.named_parameters() if parameter.requires_grad]
    named: Named = []
    for position, item in enumerate(params):
        name, parameter = item if isinstance(item, tuple) else (str(position), item)
        if not isinstance(parameter, Tensor):
            raise TrainError(f"expected parameters or (name, parameter) pairs, got {type(item).__name__}")
        named.append((name, parameter))
    return named


def latent_weights(module: nn.Module) -> list[Tensor]:
    """The weights of layers that binarize a real weight in their forward pass."""
    layers = [layer for layer in module.modules() if getattr(layer, "latent", False) is True]
    return [parameter for layer in layers for parameter in layer.parameters(recurse=False)]


def split(
    named: Named, latent: Iterable[Tensor], rules: Mapping[str, Mapping[str, Any]], bias_factor: float = 1.0
) -> list[Group]:
    """One group per kind of parameter, with the fields of its rule.

    `rules` maps "binary", "latent" and "real" to fields, the rule's name among them. Weight decay goes to real weights
    only: it would do nothing to a weight that is ±1, and norms and biases have no use for it.
    """
    latent_ids = {id(parameter) for parameter in latent}
    kinds: dict[str, Named] = {"binary": [], "latent": [], "real": [], "undecayed": []}
    apart = bool(rules["real"].get("weight_decay")) or bias_factor != 1
    for name, parameter in named:
        if is_binary(parameter):
            kinds["binary"].append((name, parameter))
        elif id(parameter) in latent_ids:
            kinds["latent"].append((name, parameter))
        else:
            kinds["undecayed" if apart and parameter.dim() < 2 else "real"].append((name, parameter))
    fields = {**rules, "undecayed": {**rules["real"], "weight_decay": 0.0}}
    if bias_factor != 1:
        fields["undecayed"] = {**fields["undecayed"], "lr_factor": bias_factor}
    return [{**fields[kind], "params": members} for kind, members in kinds.items() if members]


def check_group(group: Group) -> None:
    """Refuse a group whose rule does not fit the kind of its parameters."""
    rule = find_rule(group["rule"])
    for name, parameter in zip(group["param_names"], group["params"], strict=True):
        if is_binary(parameter) and not rule.binary:
            raise TrainError(f"binary parameter {name!r} is claimed by rule {rule.name!r}: give it 'bop' or 'bop2nd'")
        if rule.binary and not is_binary(parameter):
            raise TrainError(
                f"parameter {name!r} is claimed by the binary rule {rule.name!r} but is not a BinaryParameter: "
                "declare it binary or give it 'adam'"
            )


def check_claims(groups: Iterable[Group], named: Named) -> None:
    """Refuse a parameter that two groups claim, or that no group does."""
    owners: dict[int, str] = {}
    for group in groups:
        for name, parameter in group["params"]:
            if id(parameter) in owners:
                raise TrainError(
                    f"parameter {name!r} is claimed twice, by {owners[id(parameter)]} and {group['rule']!r}"
                )
            owners[id(parameter)] = f"{group['rule']!r} as {name!r}"
    orphans = [name for name, parameter in named if id(parameter) not in owners]
    if orphans:
        raise TrainError(f"no group claims {', '.join(orphans[:5])}{' ...' if len(orphans) > 5 else ''}: add a group")
