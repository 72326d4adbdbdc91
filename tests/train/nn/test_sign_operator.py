"""The operator `bitedge::sign`: torch's own checks, and what `torch.compile` and `torch.export` make of it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from bitedge.train.nn.quantize import QUANTIZERS

EDGES = [0.0, -0.0, 1.0, -1.0, 1e-30, -1e-30, 0.5, -3.0]


@pytest.mark.parametrize(
    ("surrogate", "dtype"),
    [
        (("ste", 1.0), torch.float32),
        (("ste", float("inf")), torch.float64),
        (("approx", 1.0), torch.float16),
        (("swish", 5.0), torch.bfloat16),
    ],
)
def test_torch_accepts_the_operator(surrogate: tuple[str, float], dtype: torch.dtype) -> None:
    layouts = (torch.randn(2, 3, 4, 4), torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last), torch.randn(()))
    for x in layouts:
        results = torch.library.opcheck(
            torch.ops.bitedge.sign.default, (x.to(dtype).requires_grad_(), *surrogate), raise_exception=True
        )
        assert set(results.values()) == {"SUCCESS"}


@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # inductor's own
def test_inductor_gives_the_same_signs_and_gradients() -> None:
    def network(x: Tensor) -> list[Tensor]:
        return [sign(x * 1.0) * 3.0 for sign in QUANTIZERS.values()]  # something to fuse with on either side

    x, y = (torch.tensor(EDGES * 8, requires_grad=True) for _ in range(2))
    compiled = torch.compile(network, fullgraph=True)
    for got, want in zip(compiled(x), network(y), strict=True):
        assert got.tolist() == want.tolist() == [3, 3, 3, -3, 3, -3, 3, -3] * 8
        got.sum().backward(retain_graph=True)  # type: ignore[no-untyped-call]
        want.sum().backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(x.grad, y.grad)


def test_export_keeps_the_operator_whole() -> None:
    class Network(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return QUANTIZERS["swish"](x)

    program = torch.export.export(Network(), (torch.randn(2, 3),))
    calls = [(node.target, node.args[1:]) for node in program.graph.nodes if node.op == "call_function"]
    assert calls == [(torch.ops.bitedge.sign.default, ("swish", 5.0))]
