"""Go back from an export folder to the network and the images that it came from."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from bitedge.export.api import input_shape
from bitedge.export.capture.capture import Captured, trace
from bitedge.export.errors import ExportError
from bitedge.export.ir.graph import Graph
from bitedge.export.lowering.half import halve_weights
from bitedge.export.lowering.lower import lower
from bitedge.export.report.report import REPORT
from bitedge.train.nn import BinaryLayer

if TYPE_CHECKING:
    from bitedge.train.engine.run import Run

Reopened = tuple[Captured, Graph, Captured | None, NDArray[Any], NDArray[np.int64]]


def reopen(folder: Path, data: Path | None, limit: int | None) -> Reopened:
    """Give the captured module, its lowered graph, the module with float16 weights if it has any, and the images."""
    run, captured, lowered = relower(folder)
    half = None
    if _source(folder)[1]:
        half = trace(halved_module(run.module), input_shape(run), preprocessing=run.preprocessing)
    images, labels = run.evaluation(data, limit=limit)
    return captured, lowered, half, images, labels


def relower(folder: Path) -> tuple[Run, Captured, Graph]:
    """Give the training run of an export folder, its captured module, and the lowered graph that was written."""
    from bitedge.train.engine.run import load_run

    source, fp16 = _source(folder)
    run = load_run((folder / source["run"]).resolve(), checkpoint=source["checkpoint"])
    captured = trace(run.module, input_shape(run), preprocessing=run.preprocessing)
    lowered = lower(captured.graph)
    return run, captured, halve_weights(lowered) if fp16 else lowered


def _source(folder: Path) -> tuple[dict[str, Any], bool]:
    try:
        report = json.loads((folder / REPORT).read_text(encoding="utf-8"))
        source, half = report["source"], report["half"]
    except OSError as error:
        raise ExportError(f"{folder} is not an export folder: cannot read {REPORT} ({error.strerror})") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ExportError(f"{folder / REPORT} is damaged: {error!r}; export again") from error
    if source is None:
        raise ExportError(
            f"{folder} was exported from a module in memory; verify it with bitedge.export.verify_artifacts in Python"
        )
    return source, half is not None


def halved_module(module: nn.Module) -> nn.Module:
    """Give a copy whose float weights are rounded to float16, as `lowering.half` rounds them."""
    copied = copy.deepcopy(module)
    for layer in copied.modules():
        if isinstance(layer, BinaryLayer):
            continue
        for parameter in layer.parameters(recurse=False):
            if parameter.ndim > 1:
                parameter.data = parameter.data.half().float()
    return copied
