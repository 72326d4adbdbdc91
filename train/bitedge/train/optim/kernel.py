"""Run the elementwise kernel of a rule over one parameter: in cache-sized blocks, or compiled into one loop.

An eager optimizer step is a dozen elementwise operations, each of which streams whole tensors through main memory.
Running the chain on one slice at a time keeps the slice in the cache, so that main memory sees a single pass. The
arithmetic is the same, element by element, so blocks and compiled loops give the same bits as whole tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from .hyper import as_tensor

Scalar: TypeAlias = float | Tensor
Kernel: TypeAlias = Callable[..., None]
"""A function of (scratch or None, flipped or None, weight, grad, *state, *scalars), elementwise and in place."""

BLOCK_PER_THREAD = 131_072
"""Elements of a block for each thread: 0.5 MB per operand, with at most five operands in flight."""


def run(
    kernel: Kernel, tensors: Sequence[Tensor], flipped: Tensor | None, scalars: Sequence[Scalar], *, compiled: bool
) -> None:
    """Apply the kernel to weight, gradient and state of one parameter, and to its record of flips if there is one."""
    operands = list(tensors) if flipped is None else [*tensors, flipped]
    if compiled:
        views = [bare(view) for view in flat(operands) or operands]
        record = None if flipped is None else views.pop()
        compile_kernel(kernel)(None, record, *views, *as_tensors(scalars, tensors[0].device))
        return
    for scratch, *pieces in blocks(operands):
        kernel(scratch, None if flipped is None else pieces.pop(), *pieces, *scalars)


def average_all(averages: Sequence[Tensor], values: Sequence[Tensor], rate: Scalar) -> None:
    """Move every average towards its value by a share of the difference, in multi-tensor operations."""
    moves = torch._foreach_sub(list(values), list(averages))
    torch._foreach_mul_(moves, rate)
    torch._foreach_add_(list(averages), moves)


def as_tensors(scalars: Sequence[Scalar], device: torch.device) -> list[Tensor]:
    """Hyper-parameters as a compiled kernel takes them: 0-dim, float32, so that a new value is not a new kernel."""
    return [as_tensor(scalar, device).to(device, torch.float32) for scalar in scalars]


def blocks(tensors: Sequence[Tensor]) -> Iterator[tuple[Tensor, ...]]:
    """Yield a float32 scratch slice followed by the matching slices of the tensors.

    On a GPU, under a tracer and for layouts that have no common flat view, the only slice is the whole.
    """
    whole = tensors[0].device.type != "cpu" or torch.compiler.is_compiling()
    views = None if whole else flat(tensors)
    if views is None:
        yield torch.empty_like(tensors[0], dtype=torch.float32), *tensors
        return
    size = BLOCK_PER_THREAD * torch.get_num_threads()
    scratch = torch.empty(min(size, views[0].numel()), dtype=torch.float32)
    for pieces in zip(*(torch.split(view, size) for view in views), strict=True):
        length = pieces[0].numel()
        yield scratch if length == scratch.numel() else scratch[:length], *pieces


def flat(tensors: Sequence[Tensor]) -> list[Tensor] | None:
    """The tensors as one-dimensional views in storage order, or None when their layouts are not one dense order."""
    strides = tensors[0].stride()
    if any(tensor.stride() != strides for tensor in tensors[1:]):
        return None
    if tensors[0].is_contiguous():
        return [tensor.detach().view(-1) for tensor in tensors]
    if tensors[0].dim() == 4 and tensors[0].is_contiguous(memory_format=torch.channels_last):
        return [tensor.detach().permute(0, 2, 3, 1).view(-1) for tensor in tensors]
    return None


def root(tensor: Tensor, out: Tensor | None) -> Tensor:
    """The square root, correctly rounded everywhere, written to `out` if given.

    On a CPU torch asks MKL, which is off by one unit in the last place for every sixth number; numpy uses the
    instruction of the processor, and so do compiled loops.
    """
    if out is None or tensor.device.type != "cpu" or torch.compiler.is_compiling():
        return torch.sqrt(tensor, out=out)
    np.sqrt(tensor.numpy(), out=out.numpy())
    return out


def bare(tensor: Tensor) -> Tensor:
    """The same memory without the history of views, which would make the compiler specialize on each shape."""
    alias = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return alias.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())


@cache
def compile_kernel(kernel: Kernel) -> Kernel:
    """The kernel through torch.compile: one loop over memory, compiled once for all shapes and hyper-parameters."""
    return torch.compile(kernel, dynamic=True, fullgraph=True)
