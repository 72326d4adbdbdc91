"""A small BinaryNet learns 512 images by heart, with each of the three ways of training it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from bitedge.train import BinaryNet, ModelOptimizer
from bitedge.train.data import ArrayDataset, load_digits
from bitedge.train.nn import BinaryLayer

EPOCHS = 20


def five_hundred() -> ArrayDataset:
    digits = load_digits(validation=0)
    return ArrayDataset("few", digits.labels, digits.preprocessing, {"train": digits.arrays("train", limit=512)})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "options"),
    [
        ("bop2nd", {"gamma": 1e-3, "sigma": 1e-3, "tau": 1e-2, "mode": "biased"}),
        ("bop", {"gamma": 1e-3, "tau": 1e-6}),
        ("latent", {}),
    ],
)
def test_train_accuracy_reaches_99_percent(rule: str, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    network = BinaryNet(width=16, norm_momentum=0.1, latent=rule == "latent")
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = ModelOptimizer(network, rule=rule, lr=1e-2, **options)
    data = five_hundred()
    batches = data.loader("train", batch_size=32, seed=0)
    everything = next(data.loader("train", batch_size=512, shuffle=False).epoch(0))
    accuracy = 0.0
    for epoch in range(EPOCHS):
        network.train()
        for images, labels in batches.epoch(epoch):
            optimizer.zero_grad()
            F.cross_entropy(network(images), labels).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        network.eval()
        with torch.no_grad():
            accuracy = float((network(everything[0]).argmax(1) == everything[1]).float().mean())
        if accuracy >= 0.99:
            break
    assert accuracy >= 0.99
    for layer in network.modules():
        if isinstance(layer, BinaryLayer) and not layer.latent:
            assert torch.equal(layer.weight.detach().abs(), torch.ones_like(layer.weight))
