"""Gradients that are not finite, scalers that skip, settings, loaders and schedulers: what a loop must get right."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.train.small_runs import SMALL
from torch import nn
from torch.optim import lr_scheduler

from bitedge.train.data import FolderDataset, load_dataset
from bitedge.train.engine.build import build_dataset
from bitedge.train.engine.execution import settings
from bitedge.train.engine.metrics import read_rows
from bitedge.train.engine.optimization import MOST_SKIPPED, Optimization
from bitedge.train.engine.progress import Silent
from bitedge.train.engine.trainer import fit
from bitedge.train.errors import TrainError
from bitedge.train.nn import BinaryLinear
from bitedge.train.optim import ModelOptimizer
from bitedge.train.recipes.recipe import DataRecipe, Execution, Recipe, load_recipe


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(BinaryLinear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 3))


def recipe(**changes: object) -> Recipe:
    optimizer = {"rule": "bop2nd", "gamma": 1e-1, "sigma": 1e-1, "tau": 1e-3, "lr": 1e-2, **changes}
    return load_recipe({"name": "x", "epochs": 2, "batch_size": 4, "optimizer": optimizer})


def gradients(module: nn.Module, seed: int) -> None:
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(seed))
    module(x).square().mean().backward()


def test_a_gradient_that_is_not_finite_leaves_no_trace() -> None:
    modules = [network(), network()]
    clean, poisoned = (Optimization(recipe(), module, 5, watch=1) for module in modules)
    for seed in range(4):
        for module in modules:
            gradients(module, seed)
        assert clean.step()
        assert poisoned.step()
        if seed == 1:
            gradients(modules[1], 99)
            weight = next(modules[1].parameters())
            assert weight.grad is not None
            weight.grad[0, 0] = float("nan")
            assert not poisoned.step()
            assert weight.grad is None
    assert poisoned.skipped == 1
    assert poisoned.schedules.current == clean.schedules.current == 4
    for (name, value), other in zip(modules[0].named_parameters(), modules[1].parameters(), strict=True):
        assert torch.equal(value, other), name
        for key, state in clean.optimizer.state[value].items():
            if isinstance(state, torch.Tensor):
                assert torch.equal(state, poisoned.optimizer.state[other][key]), (name, key)
    assert poisoned.epoch_figures()["skipped_steps"] == 1


def test_nothing_but_bad_gradients_stops_the_run() -> None:
    module = network()
    optimization = Optimization(recipe(), module, 5)
    for _ in range(MOST_SKIPPED - 1):
        next(module.parameters()).grad = torch.full((16, 8), float("inf"))
        optimization.step()
    next(module.parameters()).grad = torch.full((16, 8), float("inf"))
    with pytest.raises(TrainError, match="100 steps in a row were not finite"):
        optimization.step()


def test_schedules_wait_when_the_scaler_skips() -> None:
    module = network()
    optimization = Optimization(recipe(lr={"kind": "linear", "start": 1e-2, "end": 1e-3}), module, 5)
    optimization.scaler = torch.amp.GradScaler("cpu", enabled=True, init_scale=2.0**127)  # overflows at once
    optimization.backward(module(torch.randn(4, 8)).square().sum())
    scale = optimization.scaler.get_scale()
    assert not optimization.step()
    assert optimization.schedules.current == 0
    assert optimization.scaler.get_scale() < scale
    optimization.scaler = torch.amp.GradScaler("cpu", enabled=True, init_scale=2.0)
    optimization.backward(module(torch.randn(4, 8)).square().sum())
    assert optimization.step()
    assert optimization.schedules.current == 1


def test_clipping_bounds_real_gradients_and_leaves_binary_ones() -> None:
    module = network()
    optimization = Optimization(recipe(clip_norm=0.5), module, 5)
    for parameter in module.parameters():
        parameter.grad = torch.full_like(parameter, 3.0)
    seen: dict[str, torch.Tensor] = {}

    def look(*_: object) -> None:
        seen.update({n: p.grad.clone() for n, p in module.named_parameters() if p.grad is not None})

    optimization.optimizer.register_step_pre_hook(look)
    optimization.step()
    assert set(seen.pop("0.weight").flatten().tolist()) == {3.0}
    assert sum(float(grad.square().sum()) for grad in seen.values()) == pytest.approx(0.25, rel=1e-4)


def test_accumulated_parts_give_the_gradient_of_the_whole_batch(tmp_path: Path) -> None:
    """LayerNorm has no batch statistics, so four parts of ten images are one batch of forty, up to rounding."""
    changes = [*SMALL, "epochs=1", "network.arguments.norm=layer", "data.augment=false", "optimizer.tau=1e9"]
    runs = [
        fit("digits", out=tmp_path / str(n), overrides=[*changes, f"optimizer.accumulate={n}"], progress=Silent())
        for n in (1, 4)
    ]
    first, second = (read_rows(run.folder / "metrics.jsonl")[-1] for run in runs)
    assert first["train_loss"] == pytest.approx(second["train_loss"], rel=1e-4)
    for name, value in runs[0].module.state_dict().items():
        torch.testing.assert_close(value, runs[1].module.state_dict()[name], rtol=1e-2, atol=1e-3, msg=name)


@pytest.mark.parametrize("warn_only", [False, True])
def test_settings_are_put_back(warn_only: bool) -> None:
    torch.use_deterministic_algorithms(True, warn_only=warn_only)
    try:
        with settings(Execution(), torch.device("cpu")):
            pass
        assert torch.is_deterministic_algorithms_warn_only_enabled() is warn_only
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for split, count in (("train", 6), ("val", 3)):
        for label in ("a", "b"):
            (tmp_path / split / label).mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 256, (40, 40, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / split / label / f"{number}.png")
    return tmp_path


def test_limit_changes_nothing_but_the_number_of_images(folder: Path) -> None:
    whole, part = (
        build_dataset(DataRecipe(name="folder", size=32, resize=36, workers=0, limit=limit), folder)
        for limit in (None, 4)
    )
    assert isinstance(whole, FolderDataset)
    assert isinstance(part, FolderDataset)
    assert (part.size("train"), part.size("test")) == (4, whole.size("test"))
    assert (part.augmentation, part.workers, part.labels) == (whole.augmentation, whole.workers, whole.labels)
    assert part.augmentation == "resized_crop"


def test_workers_stay_from_epoch_to_epoch_and_draw_no_random_numbers(folder: Path) -> None:
    data = load_dataset("folder", folder, size=32, validation=0, workers=1)
    loader = data.loader("train", batch_size=4, augment=True)
    before = torch.get_rng_state()
    first = [images for images, _ in loader.epoch(0)]
    workers = loader._batches._iterator._workers  # type: ignore[attr-defined]
    second = [images for images, _ in loader.epoch(1)]
    assert loader._batches._iterator._workers is workers  # type: ignore[attr-defined]
    assert torch.equal(torch.get_rng_state(), before)
    alone = load_dataset("folder", folder, size=32, validation=0, workers=0).loader("train", batch_size=4, augment=True)
    for epoch, images in enumerate((first, second)):
        expected = [batch for batch, _ in alone.epoch(epoch)]
        assert all(torch.equal(a, b) for a, b in zip(images, expected, strict=True))
    late = [images for images, _ in loader.epoch(1, start=2)]
    assert torch.equal(late[0], second[2])


@pytest.mark.parametrize("method", ["adam", "sgd"])
def test_torchs_schedulers_drive_the_real_groups(method: str) -> None:
    module = network()
    optimizer = ModelOptimizer(module, rule="bop", method=method, lr=1e-2)
    scheduler = lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=10)
    start = [group["lr"] for group in optimizer.param_groups if group["rule"] == method]
    weight = next(module.parameters())
    before = weight.detach().clone()
    for _ in range(3):
        for parameter in module.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        scheduler.step()
    after = [group["lr"] for group in optimizer.param_groups if group["rule"] == method]
    assert all(b > a for a, b in zip(start, after, strict=True))
    assert not torch.equal(weight, before)
    assert set(weight.flatten().tolist()) <= {-1.0, 1.0}


def test_a_scheduler_on_a_flip_rule_alone_is_warned_about() -> None:
    from bitedge.train.optim import Bop

    weight = nn.Parameter(torch.ones(3))
    optimizer = Bop([weight])
    scheduler = lr_scheduler.StepLR(optimizer, 1, 0.5)
    weight.grad = torch.ones(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimizer.step()
        scheduler.step()
    with pytest.warns(UserWarning, match="lr has no effect on Bop: schedule gamma or tau"):
        optimizer.step()
