"""A binary weight stays declared binary on every way that torch takes with a module."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from bitedge.train.nn import BinaryConv2d
from bitedge.train.nn.parameter import BinaryParameter, is_binary
from bitedge.train.optim import ModelOptimizer


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(BinaryConv2d(3, 4, 3), nn.BatchNorm2d(4))


def saved_and_loaded(module: nn.Module) -> nn.Module:
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    loaded: nn.Module = torch.load(buffer, weights_only=False)
    return loaded


def assigned(module: nn.Module) -> nn.Module:
    module.load_state_dict(module.state_dict(), assign=True)
    return module


def from_meta(module: nn.Module) -> nn.Module:
    state = module.state_dict()
    empty = module.to("meta").to_empty(device="cpu")
    empty.load_state_dict(state)
    return empty


def swapped(module: nn.Module) -> nn.Module:
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        return module.double().float()
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)


def compiled(module: nn.Module) -> nn.Module:
    wrapped: nn.Module = torch.compile(module, backend="aot_eager")  # type: ignore[assignment]
    wrapped(torch.ones(2, 3, 4, 4))
    return wrapped


WAYS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "pickle": lambda module: pickle.loads(pickle.dumps(module)),
    "torch.save": saved_and_loaded,
    "deepcopy": copy.deepcopy,
    "to": lambda module: module.to(torch.float64).to(torch.float32),
    "to, overwriting": swapped,
    "meta device": from_meta,
    "load_state_dict, assigning": assigned,
    "share_memory": lambda module: module.share_memory(),
    "compile": compiled,
}


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's tracer does so itself
@pytest.mark.parametrize("way", WAYS)
def test_mark_survives(way: str) -> None:
    module = WAYS[way](network())
    weight = next(module.parameters())
    assert is_binary(weight)
    assert torch.equal(weight.detach(), next(network().parameters()).detach())
    assert [group["rule"] for group in ModelOptimizer(module).param_groups] == ["bop2nd", "adam"]


def test_a_saved_parameter_is_read_without_running_code(tmp_path: Path) -> None:
    torch.save(BinaryParameter(torch.ones(3), requires_grad=False), tmp_path / "weight.pt")
    weight = torch.load(tmp_path / "weight.pt", weights_only=True)
    assert is_binary(weight)
    assert not weight.requires_grad


def tell_rules(module: nn.Module, port: int, answers: Any) -> None:
    """In a spawned process: what an optimizer makes of the module, plain and wrapped for several processes."""
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
    wrapped = DistributedDataParallel(module)
    wrapped(torch.ones(2, 3, 4, 4)).sum().backward()
    rules = [[group["rule"] for group in ModelOptimizer(each).param_groups] for each in (module, wrapped)]
    dist.destroy_process_group()
    answers.put(rules)


def test_mark_survives_a_spawned_process_and_its_wrapper() -> None:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = mp.get_context("spawn")
    answers = context.SimpleQueue()
    process = context.Process(target=tell_rules, args=(network(), port, answers))
    process.start()
    process.join(120)
    assert process.exitcode == 0
    assert answers.get() == [["bop2nd", "adam"]] * 2
