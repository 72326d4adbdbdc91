"""Blocks, whole tensors, multi-tensor operations, tensor hyper-parameters and compiled loops: the same bits."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
import torch
from torch import Tensor

from bitedge.train.nn.parameter import BinaryParameter
from bitedge.train.optim import Bop, Bop2ndOrder, CascadedBop2nd, Cema, Diode, Polynomial, Schedules, kernel

SHAPES = [(7, 5, 3, 3), (33,), (64, 41)]
CASES: list[tuple[type[Any], dict[str, Any]]] = [
    (Bop, {"gamma": 3e-2, "tau": 2e-2}),
    (Bop2ndOrder, {"gamma": 3e-2, "sigma": 2e-2, "tau": 3e-2, "mode": "biased"}),
    (Bop2ndOrder, {"gamma": 3e-2, "sigma": 2e-2, "tau": 0.3, "mode": "unbiased"}),
    (Bop2ndOrder, {"gamma": 3e-2, "sigma": 2e-2, "tau": 5e-2, "mode": "adam"}),
    (Bop2ndOrder, {"gamma": 3e-2, "sigma": 2e-2, "tau": 0.5, "mode": "unbiased", "threshold": "noise"}),
    (Bop2ndOrder, {"gamma": 3e-2, "sigma": 2e-2, "tau": 0.5, "mode": "adam", "threshold": "noise"}),
    (Cema, {"gamma": 3e-1, "sigma": 3e-2, "tau": 1e-2}),
    (CascadedBop2nd, {"gamma": 3e-1, "sigma": 2e-2, "alpha": 3e-2}),
    (Diode, {"gamma": 3e-2, "alpha": 3e-2}),
]
IDS = ["bop", "biased", "unbiased", "adam", "noise", "adam-noise", "cema", "cascade", "diode"]


def weights(dtype: torch.dtype = torch.float32, layout: torch.memory_format = torch.contiguous_format) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    values = [torch.where(torch.rand(shape, generator=generator) < 0.5, -1.0, 1.0).to(dtype) for shape in SHAPES]
    return [BinaryParameter(v.contiguous(memory_format=layout) if v.dim() == 4 else v) for v in values]


def run(case: tuple[type[Any], dict[str, Any]], params: list[Tensor], steps: int = 25, **options: Any) -> list[Tensor]:
    """Weights and state after some steps with scheduled gamma; the second parameter misses every third gradient."""
    optimizer_class, fields = case
    optimizer = optimizer_class(params, **fields, **options)
    schedules = Schedules(optimizer, {"gamma": Polynomial(fields["gamma"], fields["gamma"] / 10)}, steps)
    generator = torch.Generator().manual_seed(1)
    for step in range(steps):
        for index, parameter in enumerate(params):
            grad = torch.randn(parameter.shape, generator=generator).to(parameter.dtype)
            parameter.grad = None if index == 1 and step % 3 == 2 else torch.empty_like(parameter).copy_(grad)
        optimizer.step()
        schedules.step()
    state = [value for p in params for key, value in sorted(optimizer.state[p].items())]
    return [*(p.detach().clone() for p in params), *state]


def assert_same(first: list[Tensor], second: list[Tensor]) -> None:
    assert len(first) == len(second)
    for a, b in zip(first, second, strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)


@pytest.mark.parametrize("case", CASES, ids=IDS)
@pytest.mark.parametrize(
    "options", [{"foreach": True}, {"capturable": True}, {"foreach": True, "capturable": True}], ids=str
)
def test_same_bits_as_single_tensor(case: tuple[type[Any], dict[str, Any]], options: dict[str, Any]) -> None:
    options = {"track_flips": True, **options}
    expected = run(case, weights(), foreach=False, track_flips=True)
    assert not torch.equal(expected[0], weights()[0])
    assert_same(expected, run(case, weights(), **options))


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_block_size_does_not_matter(case: tuple[type[Any], dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = run(case, weights(), track_flips=True)
    monkeypatch.setattr(kernel, "BLOCK_PER_THREAD", 17)
    assert_same(expected, run(case, weights(), track_flips=True))


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_layout_does_not_matter(case: tuple[type[Any], dict[str, Any]]) -> None:
    assert_same(run(case, weights()), run(case, weights(layout=torch.channels_last)))


def test_weights_that_are_not_dense() -> None:
    columns = torch.ones(6, 8)[:, ::2]
    weight = BinaryParameter(columns)
    assert not weight.is_contiguous()
    optimizer = Bop2ndOrder([weight], gamma=0.5, sigma=0.5, tau=0.1)
    weight.grad = torch.ones(6, 4)
    weight.grad[0] = -1
    optimizer.step()
    assert weight[0].tolist() == [1.0] * 4
    assert bool((weight[1:] == -1).all())


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,)])
def test_scalars_and_empty_weights(shape: tuple[int, ...]) -> None:
    for optimizer_class in (Bop, Bop2ndOrder):
        weight = BinaryParameter(torch.ones(shape))
        optimizer = optimizer_class([weight], gamma=0.5)
        weight.grad = torch.ones(shape)
        optimizer.step()
        assert torch.equal(weight, -torch.ones(shape))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("case", CASES[:3], ids=IDS[:3])
def test_state_is_float32_for_every_type_of_weight(case: tuple[type[Any], dict[str, Any]], dtype: torch.dtype) -> None:
    single = run(case, weights(dtype))
    averages = [value for value in single[len(SHAPES) :] if value.dim()]
    assert all(value.dtype == torch.float32 for value in averages)
    assert all(bool((weight.abs() == 1).all()) and weight.dtype == dtype for weight in single[: len(SHAPES)])
    assert_same(single, run(case, weights(dtype), foreach=True))


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a CPU")
@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # inductor's own
@pytest.mark.parametrize("case", [*CASES[:3], *CASES[-2:]], ids=[*IDS[:3], *IDS[-2:]])
def test_compiled_kernel_gives_the_same_bits(case: tuple[type[Any], dict[str, Any]]) -> None:
    assert_same(run(case, weights()), run(case, weights(), compiled=True))


def test_compiled_step_follows_tensor_hyper_parameters() -> None:
    case = CASES[1]
    expected = run(case, weights(), foreach=False)
    torch._dynamo.reset()
    params = weights()
    optimizer = Bop2ndOrder(params, **case[1], capturable=True)
    schedules = Schedules(optimizer, {"gamma": Polynomial(3e-2, 3e-3)}, 25)
    compilations: list[int] = []

    def count(module: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
        compilations.append(len(module.graph.nodes))
        return module.forward

    step = torch.compile(optimizer.step, backend=count)
    generator = torch.Generator().manual_seed(1)
    for turn in range(25):
        for index, parameter in enumerate(params):
            grad = torch.randn(parameter.shape, generator=generator)
            parameter.grad = None if index == 1 and turn % 3 == 2 else grad
        step()
        schedules.step()
        if turn == 5:
            early = len(compilations)
    state = [value for p in params for _, value in sorted(optimizer.state[p].items())]
    assert_same(expected, [*(p.detach().clone() for p in params), *state])
    assert compilations
    assert len(compilations) == early, "a new gamma must not compile the step again"
