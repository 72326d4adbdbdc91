"""The networks of others, counted layer by layer, beside what their papers and authors publish."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from bitedge.train.models import NETWORKS, create_model
from bitedge.train.models.published import PUBLISHED
from bitedge.train.models.summary import summarize
from bitedge.train.nn import BinaryLayer, make_real


def parameters_as_larq_counts(module: nn.Module) -> int:
    """Parameters, and the running statistics of norms without scale and centre; BinaryDenseNet's table has all."""
    norms = [layer for layer in module.modules() if isinstance(layer, nn.BatchNorm2d)]
    everything = type(module).__name__ == "BinaryDenseNet28"
    statistics = sum(2 * norm.num_features for norm in norms if everything or not norm.affine)
    return sum(parameter.numel() for parameter in module.parameters()) + statistics


def test_every_network_names_its_source() -> None:
    assert set(PUBLISHED) == set(NETWORKS)


COUNTED = [name for name, row in PUBLISHED.items() if row.parameters or row.megabytes or row.binary_macs]


@pytest.mark.parametrize("name", COUNTED)
def test_counts_are_those_of_the_authors(name: str) -> None:
    published = PUBLISHED[name]
    module = create_model(name)
    totals = summarize(module, (3, 224, 224)).totals()
    if published.parameters is not None:
        assert parameters_as_larq_counts(module) == published.parameters
    if published.megabytes is not None:
        statistics = sum(2 * layer.num_features for layer in module.modules() if isinstance(layer, nn.BatchNorm2d))
        stored = totals["packed_bytes"] - 4 * statistics  # which fold away
        assert published.megabytes == pytest.approx(stored / 2**20, rel=0.02)
    if published.binary_macs is not None:
        assert totals["binary_macs"] == pytest.approx(published.binary_macs, rel=0.005)
    if published.float_macs is not None:
        assert totals["float_macs"] == pytest.approx(published.float_macs, rel=0.02)


CIFAR = {
    "resnet20": ({}, 18, 267_264, 40_108_032),
    "vgg_small": ({}, 5, 4_571_136, 603_979_776),
    "reactnet18": ({"num_classes": 10, "image_size": 32, "small_stem": True}, 16, 10_985_472, 547_356_672),
    "binarydensenet28": ({"num_classes": 10, "image_size": 32, "small_stem": True}, 23, 4_202_496, 1_171_390_464),
}
"""Options, binary layers, binary weights and binary MACs of the forms for 32x32 images, computed by hand."""


@pytest.mark.parametrize("name", CIFAR)
def test_forms_for_small_images(name: str) -> None:
    options, layers, weights, macs = CIFAR[name]
    module = create_model(name, **options)
    totals = summarize(module, (3, 32, 32)).totals()
    assert sum(isinstance(layer, BinaryLayer) for layer in module.modules()) == layers
    assert (totals["binary_weights"], totals["binary_macs"]) == (weights, macs)


@pytest.mark.parametrize("name", ["reactnet18", "bnext_t"])
def test_a_teacher_has_no_sign(name: str) -> None:
    options: dict[str, Any] = {"num_classes": 3, "width": 4, "image_size": 32, "latent": True}
    teacher = make_real(create_model(name, **options)).train()
    seen: list[torch.Tensor] = []
    for layer in teacher.modules():
        if isinstance(layer, BinaryLayer):
            layer.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    teacher(torch.randn(2, 3, 32, 32))
    assert seen
    assert not any(bool((x.abs() == 1).all()) for x in seen)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("quicknet", {"image_size": 40}, "image_size must be at least 64 at this stem_stride, got 40"),
        ("binarydensenet28", {"image_size": 16}, "image_size must be at least 32, got 16"),
        ("resnet20", {"image_size": 30}, "image_size must be a multiple of 8"),
        ("reactnet_a", {"width": 0}, "must be positive"),
        ("bnext_t", {"num_classes": 0}, "must be positive"),
    ],
)
def test_sizes_that_make_no_network_are_refused(name: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        create_model(name, **options)
