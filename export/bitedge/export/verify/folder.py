"""Verification of an export folder: go back to the network that it came from, and compare."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from bitedge.export.api import input_shape, run_metadata
from bitedge.export.capture.capture import Captured, trace
from bitedge.export.errors import ExportError
from bitedge.export.ir.graph import Graph
from bitedge.export.lowering.half import halve_weights, halved_module
from bitedge.export.lowering.lower import lower
from bitedge.export.report.report import REPORT
from bitedge.export.verify.compare import verify_artifacts
from bitedge.export.verify.contract import Verdict
from bitedge.export.verify.metadata import Metadata

if TYPE_CHECKING:
    from bitedge.train.engine.run import Run


def verify(
    module: nn.Module,
    out_dir: str | os.PathLike[str],
    images: NDArray[Any],
    *,
    labels: NDArray[np.int64] | None = None,
    preprocessing: Mapping[str, Any] | None = None,
    require: Sequence[str] = (),
) -> Verdict:
    """Verify every artifact in a folder against the module in memory that it was exported from.

    `images` are NHWC as the artifacts take them, `labels` their classes, `preprocessing` what `export` was given;
    `require` names engines that must run.
    """
    folder = Path(out_dir)
    report = read_report(folder)
    height, width, channels = report["input"]["shape"]
    fp16 = report["half"] is not None
    captured = trace(halved_module(module) if fp16 else module, (channels, height, width), preprocessing=preprocessing)
    lowered = lower(captured.graph)
    return verify_artifacts(
        folder, captured, halve_weights(lowered) if fp16 else lowered, images, labels, require=require
    )


def verify_export(
    export_dir: str | os.PathLike[str],
    *,
    data: Path | None = None,
    limit: int | None = 1000,
    require: Sequence[str] = (),
) -> Verdict:
    """Verify every artifact in an export folder against the run that it was made from."""
    folder = Path(export_dir)
    run, captured, lowered = relower(folder)
    images, labels = run.evaluation(data, limit=limit)
    metadata = Metadata(lowered.name, *run_metadata(run))
    return verify_artifacts(folder, captured, lowered, images, labels, require=require, metadata=metadata)


def relower(folder: Path) -> tuple[Run, Captured, Graph]:
    """Give the training run of an export folder, its captured module, and the lowered graph that was written."""
    from bitedge.train.engine.run import load_run

    report = read_report(folder)
    source, fp16 = report["source"], report["half"] is not None
    if source is None:
        raise ExportError(
            f"{folder} was exported from a module in memory: use bitedge.export.verify(module, folder, images)"
        )
    if "file" in source:
        raise ExportError(
            f"{folder} was imported from {source['file']}: bitedge import it again, which compares it too"
        )
    run = load_run((folder / source["run"]).resolve(), checkpoint=source["checkpoint"])
    module = halved_module(run.module) if fp16 else run.module
    captured = trace(module, input_shape(run), preprocessing=run.preprocessing, name=report["network"])
    lowered = lower(captured.graph)
    return run, captured, halve_weights(lowered) if fp16 else lowered


def read_report(folder: Path) -> dict[str, Any]:
    """Read the report of an export folder."""
    try:
        report: dict[str, Any] = json.loads((folder / REPORT).read_text(encoding="utf-8"))
        for key in ("network", "input", "source", "half"):
            report[key]
    except OSError as error:
        raise ExportError(f"{folder} is not an export folder: cannot read {REPORT} ({error.strerror})") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ExportError(f"{folder / REPORT} is damaged: {error!r}; export again") from error
    return report
