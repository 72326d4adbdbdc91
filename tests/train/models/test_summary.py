"""The table of a network against counts made by hand."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor, nn

from bitedge.train.errors import TrainError
from bitedge.train.models import BinaryNet, BiRealNet18
from bitedge.train.models.summary import summarize
from bitedge.train.nn import BinaryConv2d, BinaryLinear, batch_norm


def small() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, bias=True),
        batch_norm(4),
        BinaryConv2d(4, 8, 3, stride=2, padding=1, groups=2),
        batch_norm(8, scale=False),
        nn.Flatten(),
        BinaryLinear(8 * 4 * 4, 10),
    )


def test_counts_by_hand() -> None:
    rows = summarize(small(), (3, 8, 8)).layers
    float_conv, full_norm, binary_conv, centred_norm, flatten, dense = rows
    assert (float_conv.float_weights, float_conv.float_macs) == (3 * 4 * 9 + 4, 8 * 8 * 4 * 27)
    assert full_norm.float_weights == 4 * 4
    assert (binary_conv.binary_weights, binary_conv.float_weights) == (8 * 2 * 9, 0)
    assert binary_conv.binary_macs == 4 * 4 * 8 * 2 * 9
    assert binary_conv.output_shape == (8, 4, 4)
    assert centred_norm.float_weights == 3 * 8
    assert (flatten.input_bits, flatten.packed_bytes) == (None, 0)
    assert (dense.input_bits, dense.binary_macs) == (1, 1280)


def test_totals_of_binarynet() -> None:
    totals = summarize(BinaryNet(), (3, 32, 32)).totals()
    assert totals["binary_weights"] == 10_352_000
    assert totals["float_weights"] == 3 * 3850
    assert totals["packed_bytes"] == 10_352_000 / 8 + 4 * 11_550
    assert totals["binary_macs"] + totals["float_macs"] == 514_072_064
    assert totals["float_macs"] == 30 * 30 * 128 * 27
    assert totals["compression"] == pytest.approx(30.93, abs=0.01)


def test_totals_of_birealnet_equal_larq_zoo() -> None:
    totals = summarize(BiRealNet18(), (3, 224, 224)).totals()
    assert totals["binary_weights"] + totals["float_weights"] == 11_699_112


def test_a_frozen_or_latent_network_counts_the_same() -> None:
    expected = summarize(BinaryNet(width=4), (3, 32, 32)).totals()
    frozen = BinaryNet(width=4, norm_scale=False)
    for name, parameter in frozen.named_parameters():
        if "conv" in name or "dense" in name:
            parameter.requires_grad_(False)
    assert summarize(frozen, (3, 32, 32)).totals() == expected
    assert summarize(BinaryNet(width=4, latent=True), (3, 32, 32)).totals() == expected


def test_a_layer_used_twice_has_its_weights_once_and_its_work_twice() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dense = BinaryLinear(6, 6)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.dense(self.dense(x))
            return out

    (row,) = summarize(Twice(), (6,)).layers
    assert (row.binary_weights, row.binary_macs) == (36, 72)


def test_module_is_left_as_it_was() -> None:
    network = small().train()
    before = {key: value.clone() for key, value in network.state_dict().items()}
    summarize(network, (3, 8, 8))
    assert network.training
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
    assert not any(module._forward_hooks for module in network.modules())


def test_text_markdown_and_json() -> None:
    summary = summarize(BinaryNet(width=4), (3, 32, 32))
    text = str(summary)
    assert text.splitlines()[0] == "BinaryNet, input 3x32x32"
    assert "times smaller" in text.splitlines()[-1]
    rows = summary.markdown().splitlines()
    assert {row.count("|") for row in rows[:-2]} == {10}
    data = json.loads(json.dumps(summary.as_dict()))
    assert data["totals"]["binary_weights"] == sum(row["binary_weights"] for row in data["layers"])
    assert data["layers"][0]["output_shape"] == [4, 30, 30]


def test_bad_shape_is_refused() -> None:
    with pytest.raises(TrainError, match="input_shape must be"):
        summarize(small(), ())
