"""Checkpoints that survive a kill at any moment: written beside the target, flushed, then renamed over it.

`state.pt` alone is what a run resumes from: module, optimizer, schedules, random state and position of one moment.
The files that others read (`last.safetensors`, `best.safetensors`, `model.json`) follow from it and are written after
it, so a run that was killed in between writes them again when it resumes.
"""

from __future__ import annotations

import io
import json
import math
import os
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from bitedge.train.errors import TrainError
from bitedge.train.nn.parameter import is_binary

BITS = "bitedge.bits"
"""The key of a safetensors file's metadata that holds the shapes of its packed parameters."""


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file so that a reader, or a resumed run, sees the old content or the new and never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Replace a text file, all or nothing."""
    write_bytes(path, text.encode())


def save_module(path: Path, module: nn.Module, *, pack: bool = False) -> None:
    """Write a module's parameters and buffers as safetensors; with `pack`, binary parameters as one bit per weight.

    A packed parameter is a list of bytes, bit 0 of each the first of its eight weights, 1 for +1; the file's metadata
    has its shape. A file with bits is for keeping: programs other than this one would read bytes.
    """
    state = {name: value.detach().to("cpu").contiguous() for name, value in module.state_dict().items()}
    shapes = {}
    if pack:
        for name, parameter in module.named_parameters():
            if is_binary(parameter):
                shapes[name] = list(parameter.shape)
                bits = np.packbits(state[name].numpy().ravel() > 0, bitorder="little")
                state[name] = torch.from_numpy(bits)
    write_bytes(path, save(state, metadata={BITS: json.dumps(shapes)} if shapes else None))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file, those that were packed to bits as ±1 again."""
    with safe_open(path, framework="pt") as file:
        state: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        shapes = json.loads((file.metadata() or {}).get(BITS, "{}"))
    for name, shape in shapes.items():
        if state[name].numel() != -(-math.prod(shape) // 8):
            raise ValueError(f"{name} has {state[name].numel()} bytes of bits, expected those of shape {shape}")
        bits = np.unpackbits(state[name].numpy(), count=math.prod(shape), bitorder="little")
        state[name] = torch.from_numpy(bits.astype(np.float32) * 2 - 1).reshape(shape)
    return state


def load_module(path: Path, module: nn.Module) -> None:
    """Read a module's parameters and buffers; a file of another network is refused with the names that differ."""
    try:
        state = read_tensors(path)
    except (OSError, SafetensorError, ValueError, KeyError, RuntimeError) as error:
        raise TrainError(f"cannot read the weights {path}: {error}") from error
    expected = module.state_dict()
    wrong = sorted(set(state) ^ set(expected)) or sorted(n for n in state if state[n].shape != expected[n].shape)
    if wrong:
        raise TrainError(f"{path} does not hold this network's weights: {wrong[0]} and {len(wrong) - 1} more differ")
    try:
        module.load_state_dict(state)
    except RuntimeError as error:  # a layer refused its weights: the last line says which and why
        raise TrainError(f"{path}: {str(error).splitlines()[-1].strip()}") from error


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Write the state of a run: tensors, numbers, strings, lists and dictionaries of them, nothing else."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_bytes(path, buffer.getvalue())


def load_state(path: Path) -> dict[str, Any]:
    """Read the state of a run; no pickle code is ever executed."""
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TrainError(f"cannot resume from {path}: {reason}") from error
    return state


def random_state(device: torch.device) -> dict[str, Any]:
    """The state of every generator that a run may draw from, as plain data."""
    version, words, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    state: dict[str, Any] = {
        "python": [version, list(words), gauss],
        "numpy": [kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, cached],
        "torch": torch.get_rng_state(),
    }
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def restore_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Put every generator back to where `random_state` found it."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    kind, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)


def all_finite(module: nn.Module) -> bool:
    """Whether every parameter and buffer of a module is a finite number."""
    tensors: list[Tensor] = [*module.parameters(), *module.buffers()]
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors if tensor.is_floating_point())
