"""Models by name, as timm has them: register, list and create.

A name is a registered one (`birealnet18`) or a path `package.module:factory`, which is imported when it is needed. A
factory is a class or function that takes keyword arguments and returns a module.
"""

from __future__ import annotations

import fnmatch
import importlib
import inspect
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from torch import nn

from bitedge.train.errors import TrainError
from bitedge.train.nn import make_real, make_real_weights
from bitedge.train.recipes.validation import nearest

Factory: TypeAlias = Callable[..., nn.Module]
F = TypeVar("F", bound=Factory)

NETWORKS: dict[str, Factory] = {}
"""Every registered model by name."""


def register_model(factory: F | None = None, *, name: str | None = None) -> Any:
    """Make a class or function known by its own name in lower case, or by `name`; used as a decorator.

    Example:
        >>> @register_model(name="tiny")
        ... def tiny(num_classes: int = 10) -> nn.Module:
        ...     return nn.Linear(4, num_classes)
        >>> create_model("tiny", num_classes=3).out_features
        3
    """

    def register(made: F) -> F:
        known = name or made.__name__.lower()
        if known in NETWORKS and NETWORKS[known] is not made:
            raise TrainError(f"a model {known!r} is registered already: choose another name")
        NETWORKS[known] = made
        return made

    return register if factory is None else register(factory)


def list_models(pattern: str = "*") -> list[str]:
    """Return the registered names, sorted; `pattern` may have the wildcards of a shell, as in "*real*"."""
    return sorted(fnmatch.filter(NETWORKS, pattern))


def find_factory(name: str) -> Factory:
    """Return the factory of a registered name or of `package.module:factory`."""
    if name in NETWORKS:
        return NETWORKS[name]
    if not name:
        raise TrainError(
            "this run has no network by name, it was given as an object: pass model=..., or name it in the recipe as "
            "network.name = 'package.module:factory'"
        )
    module_name, colon, attribute = name.partition(":")
    if not colon:
        raise TrainError(f"unknown network {name!r}: {nearest(name, NETWORKS)} (or give package.module:factory)")
    try:
        factory: Any = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise TrainError(f"network {name!r} cannot be imported: {error}") from error
    if not callable(factory):
        raise TrainError(f"network {name!r} is a {type(factory).__name__}: expected a class or function")
    return factory  # type: ignore[no-any-return]


def create_model(name: str, **options: Any) -> nn.Module:
    """Build a model by name; `options` are the keyword arguments of its factory.

    Two of them are taken here, for models with latent weights: `real=True` takes every sign out (a teacher), and
    `real_weights=True` those of the weights only (the first of two training stages).
    """
    factory = find_factory(name)
    real, real_weights = options.pop("real", False), options.pop("real_weights", False)
    try:
        module = factory(**options)
    except TypeError as error:
        raise TrainError(f"network {name!r} does not take these arguments: {error}") from error
    if not isinstance(module, nn.Module):
        raise TrainError(f"network {name!r} gave a {type(module).__name__}: expected a torch.nn.Module")
    if real_weights:
        module = make_real_weights(module)
    return make_real(module) if real else module


def accepts(factory: Factory, name: str) -> bool:
    """Whether a factory takes this keyword argument."""
    parameters = inspect.signature(factory).parameters
    return name in parameters or any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
