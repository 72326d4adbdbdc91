"""What the authors of each network publish: accuracy on ImageNet or CIFAR-10, parameters, size and work.

Nothing here was measured by this project. `tests/train/models/test_published.py` holds our counts to these figures.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """One network: what its source states (None: nothing)."""

    source: str
    """Where the figures are from."""
    data: str = "ImageNet"
    top1: float | None = None
    """Percent."""
    parameters: int | None = None
    """As the source counts them."""
    megabytes: float | None = None
    """Of 2^20 bytes."""
    binary_macs: float | None = None
    float_macs: float | None = None
    image_size: int = 224


_PAPER = "https://arxiv.org/abs/2104.05124"
_REACT = "https://arxiv.org/abs/2003.03488"
_ZOO = "Larq Zoo 2.4"

PUBLISHED: dict[str, Published] = {
    "binarynet": Published(_PAPER, "CIFAR-10", 91.9, image_size=32),
    "xnornet": Published(_PAPER, top1=46.9),
    "birealnet18": Published(_PAPER, top1=57.2, binary_macs=1.68e9, float_macs=1.39e8),
    "reactnet18": Published(_REACT, top1=65.9, binary_macs=1.68e9, float_macs=1.39e8),
    "reactnet_a": Published(_REACT, top1=69.4, binary_macs=4.82e9, float_macs=0.12e8),
    "quicknet_small": Published(_ZOO, top1=59.4, parameters=12_655_688, megabytes=4.00),
    "quicknet": Published(_ZOO, top1=63.3, parameters=13_234_088, megabytes=4.17),
    "quicknet_large": Published(_ZOO, top1=66.9, parameters=23_342_248, megabytes=5.40),
    "binarydensenet28": Published(_ZOO, top1=60.9, parameters=5_150_504, megabytes=4.12),
    "bnext_t": Published("https://arxiv.org/abs/2211.12933", top1=72.4, megabytes=13.3, binary_macs=4.82e9),
    "resnet20": Published("https://arxiv.org/abs/2103.12369", "CIFAR-10", 87.4, image_size=32),
    "vgg_small": Published("https://arxiv.org/abs/2103.12369", "CIFAR-10", 92.2, image_size=32),
    "binaryresnet": Published("this project", "CIFAR-10", image_size=32),
}
