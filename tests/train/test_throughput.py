"""The measurement runs, covers every variant, and its variants compute the same thing."""

from __future__ import annotations

import pytest
import torch

from bitedge.train.errors import TrainError
from bitedge.train.nn.quantize import ste_sign
from bitedge.train.throughput import VARIANTS, _plain_sign, measure_training


def test_report_has_every_variant() -> None:
    threads = torch.get_num_threads()
    report = measure_training(width=4, batch=4, rounds=2, threads=1)
    for key in ("images_per_second", "images_per_cpu_second", "speedup"):
        assert set(report[key]) == set(VARIANTS)
        assert all(value > 0 for value in report[key].values())
    assert report["speedup"]["plain"] == 1
    assert torch.get_num_threads() == threads


def test_plain_sign_is_the_same_function() -> None:
    torch.manual_seed(0)
    grads = []
    for function in (_plain_sign, ste_sign):
        x = torch.cat([torch.randn(100, generator=torch.Generator().manual_seed(1)), torch.tensor([1.0, -1.0, 0.0])])
        x.requires_grad_()
        y = function(x)
        (y * torch.arange(103)).sum().backward()  # type: ignore[no-untyped-call]
        assert x.grad is not None
        grads.append((y.detach(), x.grad))
    assert torch.equal(grads[0][0], grads[1][0])
    assert torch.equal(grads[0][1], grads[1][1])


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(TrainError, match="unknown network 'vgg'"):
        measure_training("vgg")
    with pytest.raises(TrainError, match="must be positive"):
        measure_training(rounds=0)
