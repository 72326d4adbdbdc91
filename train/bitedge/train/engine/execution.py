"""Process-wide settings of torch for the time of a run: threads, determinism, TF32; put back afterwards."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.utils.deterministic as memory

from bitedge.train.recipes.recipe import Execution

AUTOCAST = {"fp16": torch.float16, "bf16": torch.bfloat16}
EXACT_INTEGERS = {"fp16": 2048, "bf16": 256}


class ParityWarning(UserWarning):
    """The chosen execution trains through other numbers than the device will compute."""


@contextmanager
def settings(execution: Execution, device: torch.device) -> Iterator[None]:
    """Apply the settings and restore the previous ones.

    On a GPU float32 products may use TF32: it is exact for ±1 inputs and weights, whose products are summed in float32.
    """
    if execution.precision in AUTOCAST:
        warnings.warn(
            f"precision {execution.precision} holds integers exactly only up to {EXACT_INTEGERS[execution.precision]}: "
            "sums of a binary layer are rounded in training and not on the device, so answers may differ; "
            "fp32 keeps them equal",
            ParityWarning,
            stacklevel=3,
        )
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    fill = memory.fill_uninitialized_memory  # type: ignore[attr-defined]
    precision = torch.get_float32_matmul_precision()
    cudnn = torch.backends.cudnn
    tf32, benchmark = (cudnn.allow_tf32, cudnn.benchmark) if device.type == "cuda" else (False, False)
    if execution.threads:
        torch.set_num_threads(execution.threads)
    if execution.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)
        memory.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # costs a write per tensor
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
        cudnn.allow_tf32, cudnn.benchmark = True, not execution.deterministic
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
        memory.fill_uninitialized_memory = fill  # type: ignore[attr-defined]
        if device.type == "cuda":
            torch.set_float32_matmul_precision(precision)
            cudnn.allow_tf32, cudnn.benchmark = tf32, benchmark


def autocast(execution: Execution, device: torch.device) -> AbstractContextManager[Any]:
    """The context of a forward pass in the precision that was chosen."""
    dtype = AUTOCAST.get(execution.precision)
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype)
