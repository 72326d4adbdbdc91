"""Binary layers under torch.compile's own backend: the generated code gives the same bits, negative zeros included."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bitedge.train.nn import BinaryConv2d


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the compiler, about itself
def test_inductor_gives_the_same_bits() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(BinaryConv2d(3, 8, 3, padding=1), nn.ReLU(), BinaryConv2d(8, 4, 3))
    x = torch.randn(2, 3, 8, 8)
    x[0, 0] = -0.0  # its sign is +1; a compiler that forgets signed zeros makes it -1
    compiled = torch.compile(module, fullgraph=True)
    assert torch.equal(compiled(x), module(x))
