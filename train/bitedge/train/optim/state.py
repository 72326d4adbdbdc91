"""Loading of optimizer state without a change of type."""

from __future__ import annotations

from itertools import chain
from typing import Any

from torch import Tensor
from torch.optim import Optimizer


def keep_dtypes(optimizer: Optimizer, state_dict: dict[str, Any]) -> None:
    """Undo the cast that torch makes on loading: every tensor of the state to the type of its parameter.

    A float32 average of a half-precision weight, a double correction and a boolean flip record must stay what they are.
    """
    saved = chain.from_iterable(group["params"] for group in state_dict["param_groups"])
    params = chain.from_iterable(group["params"] for group in optimizer.param_groups)
    for index, parameter in zip(saved, params, strict=True):
        for key, value in state_dict["state"].get(index, {}).items():
            if isinstance(value, Tensor) and key != "step":
                optimizer.state[parameter][key] = value.detach().clone().to(parameter.device)
