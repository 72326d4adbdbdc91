"""Networks that random ones found to be wrong, refused or proved by nothing, each as small as it can be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.export.random_networks import Case
from tests.export.random_operators import Apply
from tests.export.small_networks import GRID
from tests.export.test_random_networks import check_case
from torch import Tensor, nn

from bitedge.export import export
from bitedge.export.capture.capture import trace
from bitedge.export.ir.exactness import exact_values
from bitedge.export.lowering.lower import lower
from bitedge.train.models import BinaryNet
from bitedge.train.nn import BinaryConv2d, BinaryLinear

IMAGES = np.random.default_rng(0).normal(0, 1, (3, 4, 4, 4)).astype(np.float32)


def bits(x: Tensor) -> Tensor:
    return torch.where(x >= 0, 1.0, -1.0)


def ended(*layers: nn.Module, channels: int = 4, side: int = 4) -> nn.Module:
    """Put a binary layer and an answer behind some layers."""
    return nn.Sequential(
        *layers, BinaryConv2d(channels, 3, 1), nn.BatchNorm2d(3), nn.Flatten(), BinaryLinear(3 * side * side, 2)
    )


def apply(name: str, function: Callable[[Tensor], Tensor]) -> nn.Module:
    return Apply(name, function)


def networks() -> dict[str, nn.Module]:
    """Give a network for every cause."""
    binary = BinaryConv2d(4, 4, 1)
    swapped = apply("halves swapped", lambda x: torch.cat([x[:, 2:], x[:, :2]], 1))
    return {
        "one minus a value": ended(apply("1 - x", lambda x: 1 - x)),
        "a dense layer on a map of one number": nn.Sequential(
            BinaryConv2d(4, 1, 4), nn.BatchNorm2d(1), nn.Flatten(), BinaryLinear(1, 2)
        ),
        "a slice of channels that is flattened": nn.Sequential(
            binary, nn.BatchNorm2d(4), apply("slice", lambda x: x[:, 1:3]), nn.Flatten(), BinaryLinear(32, 2)
        ),
        "a sign by comparison, of which torch keeps no tensor": ended(
            binary, nn.BatchNorm2d(4), apply("cast", lambda x: 2 * (x >= 0.5).float() - 1)
        ),
        "a sign behind padding": ended(binary, nn.BatchNorm2d(4), nn.ConstantPad2d(1, -2.0), side=6),
        "a permutation before a sign": ended(binary, nn.BatchNorm2d(4), swapped),
        "an approximated function before a sign": ended(binary, nn.BatchNorm2d(4), nn.GELU()),
        "bits padded with 0 and binarized again": ended(apply("bits", bits), nn.ZeroPad2d(1), side=6),
        "bits padded with a fraction": ended(apply("bits", bits), nn.ConstantPad2d(1, -0.5), side=6),
        "bits padded with 0 that are not binarized again": nn.Sequential(
            apply("bits", bits),
            nn.ZeroPad2d(1),
            BinaryConv2d(4, 3, 1, input_quantizer=None),
            nn.Flatten(),
            BinaryLinear(108, 2),
        ),
    }


@pytest.mark.parametrize("cause", networks())
def test_graphs_and_files_agree_with_torch(cause: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = networks()[cause].eval()
    check_case(Case(module, (4, 4, 4), None, IMAGES, ()), tmp_path)
    report = export(module, (4, 4, 4), tmp_path / "out", formats=["gguf", "onnx", "int8"])
    assert report.failures == {}
    assert all(row["bits"] > 0 for row in report.proof["files"].values())


def test_padded_bits_are_not_their_own_sign() -> None:
    """sign(0) is +1, so the border has more taps than a border of zeros."""
    torch.manual_seed(0)
    conv = BinaryConv2d(4, 3, 1)
    module = nn.Sequential(apply("bits", bits), nn.ZeroPad2d(1), conv, nn.Flatten(), nn.Linear(108, 2)).eval()
    captured = trace(module, (4, 4, 4))
    with torch.no_grad():
        border = F.conv2d(torch.ones(1, 4, 1, 1), conv.weight).flatten().numpy()
    np.testing.assert_array_equal(captured.tensors(IMAGES)["2"][0, 0, 0], border)
    (node,) = [node for node in lower(captured.graph).nodes if node.op.name == "binary_conv2d"]
    assert node.op.pad_value == 1  # type: ignore[attr-defined]


def test_an_approximated_function_is_not_exact() -> None:
    module = nn.Sequential(BinaryConv2d(4, 4, 1), nn.GELU(), nn.Flatten(), nn.Linear(64, 2)).eval()
    graph = lower(trace(module, (4, 4, 4)).graph)
    assert graph.output not in exact_values(graph)


def test_an_untrained_layer_norm_whose_answers_hang_on_rounding_is_explained(tmp_path: Path) -> None:
    torch.manual_seed(0)
    report = export(
        BinaryNet(norm="layer", width=8).eval(), (3, 32, 32), tmp_path, formats=["onnx"], preprocessing=GRID
    )
    reason = report.failures["onnx"]
    assert "torch's own answers to seeded inputs hang on the last rounding, so no engine can agree with them" in reason
    assert "layer 'norm2' gives numbers that are 0 but for rounding" in reason
    assert reason.endswith("train the network first, or give its norms a bias other than 0")
    assert not (tmp_path / "model.onnx").exists()
