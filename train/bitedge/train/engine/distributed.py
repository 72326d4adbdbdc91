"""Several processes, one network: join torchrun's group, share the work, prove that the binary weights agree.

`torchrun --nproc-per-node N -m bitedge.cli train ...` starts the processes; gloo joins them on CPU, nccl on GPU.
Gradients are averaged before the step, and the step is elementwise arithmetic on equal numbers, so every rank
flips the same weights; `check_identical` compares hashes all the same, for silent divergence costs a whole run.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from bitedge.train.errors import TrainError
from bitedge.train.nn.parameter import is_binary


@dataclass(frozen=True)
class Group:
    """This process among its peers, and the device that it computes on."""

    rank: int
    world: int
    device: torch.device

    @property
    def leads(self) -> bool:
        """Whether this process writes files and talks."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """Add up a tensor over all processes, in place."""
        if self.world > 1:
            dist.all_reduce(values)
        return values

    def barrier(self) -> None:
        """Wait for the others."""
        if self.world > 1:
            dist.barrier()

    def broadcast(self, module: nn.Module) -> None:
        """Give every process the parameters and buffers of the first."""
        if self.world > 1:
            for tensor in module.state_dict().values():
                dist.broadcast(tensor, src=0)


def pick_device(name: str, local_rank: int = 0) -> torch.device:
    """Turn "auto" or a device name into a device; every process of a node gets its own GPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise TrainError(f"execution.device = {name!r}: expected auto, cpu, cuda or cuda:N") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise TrainError(f"execution.device = {name!r}: this machine or this torch has no CUDA; use cpu or auto")
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", local_rank)
    return device


@contextmanager
def join(device_name: str) -> Iterator[Group]:
    """Join the process group that torchrun describes, or stand alone; leave it at the end if it was joined here."""
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    device = pick_device(device_name, int(os.environ.get("LOCAL_RANK", "0")))
    if world == 1:
        yield Group(0, 1, device)
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    joined_here = not dist.is_initialized()
    if joined_here:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield Group(rank, world, device)
    finally:
        if joined_here:
            dist.destroy_process_group()


def binary_hash(module: nn.Module) -> str:
    """SHA-256 of all binary weights, one bit each, in the order of `named_parameters`."""
    digest = hashlib.sha256()
    for name, parameter in module.named_parameters():
        if is_binary(parameter):
            digest.update(name.encode())
            digest.update(np.packbits((parameter.detach() < 0).cpu().numpy().ravel()).tobytes())
    return digest.hexdigest()


def check_identical(module: nn.Module, group: Group, step: int) -> None:
    """Stop unless the binary weights are the same, bit for bit, in every process."""
    if group.world == 1:
        return
    mine = torch.frombuffer(bytearray(bytes.fromhex(binary_hash(module))), dtype=torch.uint8).to(group.device)
    every = [torch.empty_like(mine) for _ in range(group.world)]
    dist.all_gather(every, mine)
    wrong = [rank for rank, other in enumerate(every) if not torch.equal(other, every[0])]
    if wrong:
        raise RuntimeError(f"step {step}: the binary weights of ranks {wrong} differ from those of rank 0")
