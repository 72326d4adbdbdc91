"""WhiteNet: what the whitening layer does to patches, how weights start, and that it learns."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from bitedge.train.engine.progress import Silent
from bitedge.train.engine.trainer import fit
from bitedge.train.errors import TrainError
from bitedge.train.models.whitenet import WhiteNet


def smooth_images(count: int) -> torch.Tensor:
    """Images whose neighbours agree, so that patches are far from white."""
    noise = torch.randn(count, 3, 34, 34, generator=torch.Generator().manual_seed(0))
    return F.avg_pool2d(noise, 3, stride=1) + 0.3 * torch.randn(count, 1, 1, 1)


def test_patches_become_white() -> None:
    network, images = WhiteNet(), smooth_images(64)
    network.whiten_by(images, eps=1e-9)
    with torch.no_grad():
        out = network.whiten(images).permute(1, 0, 2, 3).flatten(1)
    first, second = out[:12], out[12:]
    torch.testing.assert_close(first, -second)
    torch.testing.assert_close(first @ first.T / first.shape[1], torch.eye(12), atol=2e-3, rtol=0)
    strongest = network.whiten.weight[:12].flatten(1).norm(dim=1)
    assert torch.equal(strongest, strongest.sort().values), "the axis of the largest variance has the smallest filter"


def test_weights_start_as_the_identity() -> None:
    group = WhiteNet(width=16).groups[1]
    x = torch.randn(1, 16, 6, 6)
    with torch.no_grad():
        torch.testing.assert_close(group.get_submodule("conv1")(x)[:, :16], x)


def test_only_the_bias_of_the_first_layer_is_trained() -> None:
    network = WhiteNet(num_classes=7, width=8)
    logits = network(torch.randn(4, 3, 32, 32))
    assert logits.shape == (4, 7)
    F.cross_entropy(logits, torch.arange(4)).backward()  # type: ignore[no-untyped-call]
    frozen = {name for name, parameter in network.named_parameters() if parameter.grad is None}
    assert frozen == {"whiten.weight", *(f"groups.{g}.norm{n}.weight" for g in range(3) for n in (1, 2))}


def test_learns_a_small_set_by_heart() -> None:
    torch.manual_seed(0)
    network, images, labels = WhiteNet(width=8), smooth_images(16), torch.arange(16) % 4
    network.whiten_by(images)
    optimizer = torch.optim.SGD((p for p in network.parameters() if p.requires_grad), 0.5, momentum=0.9, nesterov=True)
    for _ in range(25):
        optimizer.zero_grad()
        torch.autograd.backward(F.cross_entropy(network(images), labels))
        optimizer.step()
    assert float((network(images).argmax(1) == labels).float().mean()) > 0.9


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(TrainError, match="width must be positive, got 0"):
        WhiteNet(width=0)


def test_a_recipe_trains_it_whitened_by_its_own_images(tmp_path: Path) -> None:
    shape = ["epochs=1", "batch_size=40", "renorm=2", "data={name='digits', limit=200, flip='alternating'}"]
    changes = [*shape, "network.arguments.width=4", "optimizer.lr.peak=0.4", "execution.precision=fp32"]
    run = fit("cifar10-teacher", out=tmp_path / "run", overrides=changes, progress=Silent())
    assert isinstance(run.module, WhiteNet)
    images, _ = next(iter(run.dataset().limited(200).loader("train", batch_size=200, shuffle=False).epoch(0)))
    expected = WhiteNet(width=4)
    expected.whiten_by(images)
    torch.testing.assert_close(run.module.whiten.weight, expected.whiten.weight)
