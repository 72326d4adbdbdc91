"""The mark of a binary weight: a parameter class, so that it survives copies, devices and checkpoints."""

from __future__ import annotations

from torch import Tensor, nn


class BinaryParameter(nn.Parameter):
    """A parameter whose every value is exactly -1 or +1, and which only a binary optimizer may change."""


def is_binary(parameter: Tensor) -> bool:
    """Tell whether a parameter was declared binary."""
    return isinstance(parameter, BinaryParameter)
