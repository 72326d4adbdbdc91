"""Two stages, a warm start from real weights, averages of real parameters, and the methods of the latent track."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tests.train.small_runs import SMALL
from torch import nn

from bitedge.train.engine.average import RealAverage
from bitedge.train.engine.initialize import initialize_from, warm_averages
from bitedge.train.engine.progress import Silent
from bitedge.train.engine.run import load_run
from bitedge.train.engine.trainer import fit
from bitedge.train.errors import TrainError
from bitedge.train.nn import BinaryLinear, make_real_weights
from bitedge.train.optim import ModelOptimizer

LATENT = "optimizer={rule = 'latent', lr = 0.01, method = 'adamw', weight_decay = 1e-5, latent_decay = 1e-5}"


def test_two_stages_end_in_bits(tmp_path: Path) -> None:
    """Activations only, then both with latent weights; and from the first stage straight to Bop2ndOrder."""
    common: dict[str, Any] = {"progress": Silent(), "callbacks": []}
    first = fit(
        "digits",
        out=tmp_path / "first",
        overrides=[*SMALL, LATENT, "optimizer.stage=activations"],
        **common,
    )
    start = dict(first.module.named_parameters())["conv2.weight"].detach()
    assert len(set(start.flatten().tolist())) > 100
    second = fit(
        "digits",
        out=tmp_path / "second",
        overrides=[*SMALL, LATENT, "optimizer.weight_decay=0", f"network.init={first.folder}", "epochs=1"],
        **common,
    )
    layer: Any = load_run(second.folder).module.get_submodule("conv2")
    assert set(layer.effective_weight().flatten().tolist()) == {-1.0, 1.0}
    warm = fit(
        "digits",
        out=tmp_path / "warm",
        overrides=[*SMALL, f"network.init={first.folder}", "optimizer.warm_start=1e6", "epochs=1"],
        **common,
    )
    weight = dict(warm.module.named_parameters())["conv2.weight"].detach()
    assert torch.equal(weight, torch.where(start >= 0, 1.0, -1.0))  # so warm that nothing flips


def pair() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return nn.Sequential(BinaryLinear(4, 3), nn.BatchNorm1d(3)), torch.randn(3, 4) / 2


def test_averages_start_at_the_real_weights(tmp_path: Path) -> None:
    module, real = pair()
    state = {**module.state_dict(), "0.weight": real}
    save_file(state, tmp_path / "best.safetensors")
    kept = initialize_from(module, tmp_path)
    weight = next(module.parameters())
    assert torch.equal(weight.detach(), torch.where(real >= 0, 1.0, -1.0))
    for rule in ("bop", "bop2nd", "cema"):
        optimizer = ModelOptimizer(module, rule=rule, warm_start=0.5)
        warm_averages(optimizer, kept)
        torch.testing.assert_close(optimizer.state[weight]["exp_avg"], -0.5 * real)
        for parameter in module.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()  # a step without a gradient flips nothing
        assert torch.equal(weight.detach(), torch.where(real >= 0, 1.0, -1.0)), rule


def test_a_run_of_another_network_is_refused(tmp_path: Path) -> None:
    module, _ = pair()
    with pytest.raises(TrainError, match=r"network.init: cannot read"):
        initialize_from(module, tmp_path)
    save_file({"other": torch.ones(2)}, tmp_path / "best.safetensors")
    with pytest.raises(TrainError, match="is of another network"):
        initialize_from(module, tmp_path)


def test_real_weights_behind_binary_inputs() -> None:
    layer = BinaryLinear(4, 2, latent=True)
    make_real_weights(nn.Sequential(layer))
    x = torch.tensor([[0.3, -0.2, 0.0, -5.0]])
    expected = np.array([[1.0, -1.0, 1.0, -1.0]], np.float32) @ layer.weight.detach().numpy().T
    np.testing.assert_allclose(layer(x).detach().numpy(), expected, rtol=1e-6)
    with pytest.raises(TrainError, match="latent=True"):
        make_real_weights(nn.Sequential(BinaryLinear(4, 2)))


def test_average_of_the_real_parameters_by_its_formula() -> None:
    module: Any = nn.Sequential(BinaryLinear(4, 3), nn.Linear(3, 2))
    average = RealAverage(module, 0.9)
    assert set(average.values) == {"1.weight", "1.bias"}
    expected = module[1].weight.detach().numpy().astype(np.float64)
    for step in range(1, 30):
        with torch.no_grad():
            module[1].weight.add_(torch.randn(2, 3))
            module[0].weight.neg_()
        average.update()
        decay = min(0.9, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * module[1].weight.detach().numpy()
    own, binary = module[1].weight.detach().clone(), module[0].weight.detach().clone()
    with average.applied():
        np.testing.assert_allclose(module[1].weight.detach().numpy(), expected, rtol=1e-5)
        assert torch.equal(module[0].weight, binary)
    assert torch.equal(module[1].weight, own)


@pytest.mark.parametrize(("method", "kind"), [("adamw", torch.optim.AdamW), ("sgd", torch.optim.SGD)])
def test_methods_are_torchs_own_and_latent_weights_are_clipped(method: str, kind: type[torch.optim.Optimizer]) -> None:
    def make() -> Any:
        torch.manual_seed(0)
        return nn.Sequential(BinaryLinear(4, 3, latent=True), nn.Linear(3, 2, bias=False))

    ours, theirs = make(), make()
    optimizer = ModelOptimizer(ours, method=method, lr=0.5, weight_decay=0.1, latent_decay=0.2, adam_eps=1e-8)
    groups = [
        {"params": [theirs[0].weight], "weight_decay": 0.2},
        {"params": [theirs[1].weight], "weight_decay": 0.1},
    ]
    options = {"momentum": 0.9} if method == "sgd" else {"eps": 1e-8}
    reference: Any = kind(groups, lr=0.5, **options)  # type: ignore[call-arg,arg-type]
    for seed in range(6):
        for module, stepped in ((ours, optimizer), (theirs, reference)):
            generator = torch.Generator().manual_seed(seed)
            for parameter in module.parameters():
                parameter.grad = torch.randn(parameter.shape, generator=generator)
            stepped.step()
        with torch.no_grad():
            theirs[0].weight.clamp_(-1, 1)
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-7)
    assert float(ours[0].weight.detach().abs().max()) == 1.0
