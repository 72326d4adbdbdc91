"""The mark of a binary weight: a parameter class that survives copies, devices, pickles and other processes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class BinaryParameter(nn.Parameter):
    """A parameter whose every value is exactly -1 or +1, and which only a binary optimizer may change."""

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Pickle as a binary parameter: torch's own way would make it a plain one."""
        del protocol
        data = self.data if type(self.data) is Tensor else self.data.as_subclass(Tensor)
        return rebuild_binary_parameter, (data, self.requires_grad)


def rebuild_binary_parameter(data: Tensor, requires_grad: bool) -> BinaryParameter:
    """Make the parameter that was pickled."""
    return BinaryParameter(data, requires_grad)


torch.serialization.add_safe_globals([rebuild_binary_parameter])


def is_binary(parameter: Tensor) -> bool:
    """Tell whether a parameter was declared binary."""
    return isinstance(parameter, BinaryParameter)
