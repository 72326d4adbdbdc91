"""Statistics of BatchNorm, taken anew: plain means over batches, whatever the running averages were."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from bitedge.train.engine.renorm import reestimate_norms


class Batches:
    """Three fixed batches, as a loader gives them."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.images = [torch.randn((16, 4, 5, 5), generator=generator) * (i + 1) + i for i in range(3)]

    def __len__(self) -> int:
        return len(self.images)

    def epoch(self, number: int, start: int = 0):  # type: ignore[no-untyped-def]
        assert number == 0
        yield from ((images, torch.zeros(16, dtype=torch.int64)) for images in self.images[start:])


def statistics(images: list[Tensor]) -> tuple[Tensor, Tensor]:
    means = torch.stack([batch.mean((0, 2, 3)) for batch in images]).mean(0)
    variances = torch.stack([batch.var((0, 2, 3), unbiased=True) for batch in images]).mean(0)
    return means, variances


@pytest.mark.parametrize("count", [1, 2, 3])
def test_plain_means_over_the_batches(count: int) -> None:
    norm = nn.BatchNorm2d(4, momentum=0.01)
    norm.running_mean = torch.full((4,), 99.0)
    module = nn.Sequential(norm).eval()
    batches = Batches()
    reestimate_norms(module, batches, count)
    mean, variance = statistics(batches.images[:count])
    torch.testing.assert_close(norm.running_mean, mean)
    torch.testing.assert_close(norm.running_var, variance)
    assert norm.momentum == 0.01
    assert not module.training
