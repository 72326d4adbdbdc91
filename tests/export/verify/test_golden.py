"""Golden vectors: torch's answers to generated inputs, steady ones where engines round differently."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from bitedge.export import lower
from bitedge.export.capture.capture import trace
from bitedge.export.ir.graph import Kind, Value
from bitedge.export.verify.golden import golden_input, reference_golden, torch_golden
from bitedge.train.nn import BinaryConv2d

INPUT = Value("image", Kind.FLOAT, (4, 4, 2))


class OnTheEdge(nn.Module):
    """A sign whose number is exactly `offset` for the first golden input."""

    def __init__(self, offset: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(2, 1, 4)
        self.binary = BinaryConv2d(1, 5, 1)
        self.head = nn.Conv2d(5, 3, 1)
        with torch.no_grad():
            self.binary.weight.copy_(torch.where(self.binary.weight >= 0, 1.0, -1.0))
            image = torch.from_numpy(golden_input(INPUT, 1)).permute(0, 3, 1, 2)
            assert self.conv.bias is not None
            self.conv.bias.add_(offset - self.conv(image).reshape(1))

    def forward(self, x: Tensor) -> Tensor:
        """Give the answer."""
        return torch.flatten(self.head(self.binary(self.conv(x))), 1)


def test_golden_answers_are_torchs() -> None:
    module = OnTheEdge(0.5).eval()
    captured = trace(module, (2, 4, 4))
    golden = torch_golden(captured, exact=False)
    images = golden_input(captured.graph.input, golden.seed, 2)
    with torch.no_grad():
        expected = module(torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()).numpy()
    np.testing.assert_allclose(golden.output, expected, rtol=1e-6)


def test_an_answer_that_hangs_on_rounding_is_no_golden_one() -> None:
    assert torch_golden(trace(OnTheEdge(0.5), (2, 4, 4)), exact=False).seed == 1
    assert torch_golden(trace(OnTheEdge(1e-8), (2, 4, 4)), exact=False).seed != 1
    assert torch_golden(trace(OnTheEdge(1e-8), (2, 4, 4)), exact=True).seed == 1


def test_a_graph_without_a_module_is_answered_by_the_reference() -> None:
    captured = trace(OnTheEdge(0.5), (2, 4, 4))
    golden = reference_golden(lower(captured.graph), count=1)
    np.testing.assert_allclose(golden.output, captured.run(golden_input(captured.graph.input, 1)), rtol=1e-5)
