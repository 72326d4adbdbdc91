"""What `Bop` and `Bop2ndOrder` share: a torch optimizer around one binary rule."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, TypeAlias, overload

import torch
from torch import Tensor
from torch.optim import Optimizer

from .rule import BinaryRule, Group
from .state import keep_dtypes

Params: TypeAlias = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]


class BinaryOptimizer(Optimizer):
    """A torch optimizer that applies one binary rule to all its parameters; subclasses name the rule."""

    rule: ClassVar[BinaryRule]

    def __init__(self, params: Params, **fields: Any) -> None:
        super().__init__(params, {**self.rule.defaults, **fields})

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters, with fields of their own if need be; every value is checked."""
        super().add_param_group(param_group)
        self.rule.prepare(self.param_groups[-1])

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickled or loaded optimizer; fields that an older version did not have get their defaults."""
        super().__setstate__(state)
        for group in self.param_groups:
            for key, value in self.rule.defaults.items():
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
        """Flip the weights whose gradients ask for it; returns the loss of the closure, if there is one."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            if group["lr"] != 1.0:
                warnings.warn(
                    f"lr has no effect on {type(self).__name__}: schedule {' or '.join(self.rule.scheduled)} instead",
                    stacklevel=2,
                )
            self.rule.update(group, self.state)
        return loss
