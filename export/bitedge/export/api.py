"""From a module, or a training run, to artifacts and a report."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray
from torch import nn

from bitedge.export.capture.capture import Captured, Example, Reference, trace
from bitedge.export.errors import ExportError
from bitedge.export.formats.bundle import Bundle
from bitedge.export.formats.formats import Format, choose
from bitedge.export.ir.exactness import exact_values
from bitedge.export.ir.graph import Graph
from bitedge.export.ir.shapes import infer
from bitedge.export.lowering.half import halve_weights, halved_module
from bitedge.export.lowering.lower import lower
from bitedge.export.report.half import Evaluation, half_effect
from bitedge.export.report.layers import layer_rows
from bitedge.export.report.report import Report
from bitedge.export.verify.contract import TOLERANCE
from bitedge.export.verify.golden import torch_golden
from bitedge.export.verify.metadata import Metadata
from bitedge.export.verify.proof import marked_signs, proof_images, prove, refuse_zeros
from bitedge.export.verify.sensitivity import rounding_advice

if TYPE_CHECKING:
    from bitedge.train.engine.run import Checkpoint, Run

PROOF_IMAGES = 64


def export(
    module: nn.Module,
    example: Example,
    out_dir: str | os.PathLike[str],
    *,
    formats: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    preprocessing: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
    name: str | None = None,
    fp16: bool = False,
    strict: bool = False,
    evaluation: Evaluation | None = None,
    source: Mapping[str, Any] | None = None,
    reference: Reference | None = None,
    max_flash: int | None = None,
    max_ram: int | None = None,
) -> Report:
    """Write a module in every format that is asked for, and give the report that is also saved beside them.

    `example` is an input tensor `[N, C, H, W]` or its shape. With `preprocessing` the artifacts take uint8 images,
    without they take float32. `formats=None` writes all that are installed. `fp16` stores float weights in half
    precision, and the report tells what that costs on the `evaluation` (images and labels); `strict` refuses a network
    in which a layer that was trained binary would stay float. `max_flash` and `max_ram` are the bytes that the format
    `c` may take.

    Every file is compared with torch, or with the `reference` that is given, on seeded inputs and on images of the
    `evaluation`. One that does not answer as it is removed, and the report's `failures` name it and the first layer
    that differs.
    """
    chosen, skipped = choose(formats)
    if (max_flash is not None or max_ram is not None) and "c" not in [row.name for row in chosen]:
        raise ExportError(
            "limits of flash and RAM are for the format 'c', which was not asked for: add it to the formats"
        )
    captured = trace(module, example, preprocessing=preprocessing, name=name, reference=reference)
    full = lower(captured.graph)
    lowered = full
    if fp16:
        captured = trace(halved_module(module), example, preprocessing=preprocessing, name=name)
        lowered = halve_weights(lower(captured.graph))
    images = proof_images(lowered, None if evaluation is None else evaluation[0])
    signs = marked_signs(captured.graph, lowered)
    refuse_zeros(captured, tuple(signs), images)
    bundle = _bundle(captured, lowered, tuple(labels or ()), training)
    bundle = replace(bundle, max_flash=max_flash, max_ram=max_ram)
    report = _describe(bundle, skipped, source, signs)
    if strict and report.stayed_float():
        rows = "; ".join(f"{row.layer} ({row.why})" for row in report.stayed_float())
        raise ExportError(f"strict: trained binary, but would stay float: {rows}")
    folder = Path(out_dir)
    folder.mkdir(parents=True, exist_ok=True)
    sizes, figures, failures = _write(bundle, chosen, folder)
    proof = _prove(folder, chosen, captured, bundle, images, sizes, failures)
    half = half_effect(bundle, full, evaluation) if fp16 else None
    report = replace(report, sizes=sizes, figures=figures, failures=failures, proof=proof, half=half)
    report.save(folder)
    return report


def _bundle(captured: Captured, lowered: Graph, labels: tuple[str, ...], training: Mapping[str, Any] | None) -> Bundle:
    outputs = infer(lowered)[lowered.output].shape[2]
    if labels and len(labels) != outputs:
        raise ExportError(f"expected one label per output, got {len(labels)} labels for {outputs} outputs")
    golden = torch_golden(captured, exact=lowered.output in exact_values(lowered))
    return Bundle(captured.graph, lowered, golden, labels, captured.preprocessing, training)


def _size(path: Path) -> int:
    """Give the bytes of a file, or of all files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(each.stat().st_size for each in files if each.is_file())


def _write(
    bundle: Bundle, chosen: Sequence[Format], folder: Path
) -> tuple[dict[str, int], dict[str, Mapping[str, Any]], dict[str, str]]:
    """Write every format; give the sizes of the files, what formats tell of themselves, and why one failed."""
    sizes: dict[str, int] = {}
    figures: dict[str, Mapping[str, Any]] = {}
    failures: dict[str, str] = {}
    for row in chosen:
        path = folder / row.file_name
        _remove(path)  # a file of an earlier export must not outlive a failure of this one
        try:
            if found := row.writer()(bundle, path):
                figures[row.name] = found
            sizes[row.file_name] = _size(path)
        except ExportError as error:
            failures[row.name] = str(error)
    return sizes, figures, failures


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _prove(
    folder: Path,
    chosen: Sequence[Format],
    captured: Captured,
    bundle: Bundle,
    images: NDArray[Any],
    sizes: dict[str, int],
    failures: dict[str, str],
) -> dict[str, Any]:
    """Compare every file with torch; one that differs is removed and becomes a failure."""
    if not sizes:
        return {}
    metadata = Metadata(bundle.name, bundle.labels, bundle.preprocessing, bundle.training)
    begun = time.monotonic()
    verdict = prove(folder, tuple(sizes), captured, bundle.lowered, images, metadata)
    names = {row.file_name: row.name for row in chosen}
    files: dict[str, Any] = {}
    advice = f"; {rounding_advice(captured, images[:2])}" if bundle.golden.moved > TOLERANCE else ""
    for row in verdict.engines:
        if row.breach:
            told = f"{row.file} did not answer as torch does and was removed: {row.breach}{advice}"
            failures[names[row.file]] = (
                told if captured.reference is None else told.replace("torch", captured.reference.name)
            )
            _remove(folder / row.file)
            del sizes[row.file]
        elif row.skipped:
            files[row.file] = {"skipped": row.skipped}
        else:
            differing = sum(layer.differing for layer in row.layers)
            files[row.file] = {"logit_error": row.logit_error, "bits": row.bits, "bits_differing": differing}
    seconds = round(time.monotonic() - begun, 2)
    return {"images": verdict.images, "of": len(images), "seconds": seconds, "files": files}


def _describe(
    bundle: Bundle, skipped: Mapping[str, str], source: Mapping[str, Any] | None, signs: Mapping[str, int]
) -> Report:
    graph = bundle.lowered
    return Report(
        network=graph.name,
        input={"kind": str(graph.input.kind), "shape": list(graph.input.shape)},
        outputs=infer(graph)[graph.output].shape[2],
        layers=tuple(layer_rows(bundle.captured, graph)),
        sizes={},
        skipped=skipped,
        source=source,
        signs_at_zero=signs,
    )


def export_run(
    run_dir: str | os.PathLike[str],
    out_dir: str | os.PathLike[str] | None = None,
    *,
    checkpoint: Checkpoint = "best",
    formats: Sequence[str] | None = None,
    fp16: bool = False,
    strict: bool = False,
    data: Path | None = None,
    limit: int | None = 1000,
    max_flash: int | None = None,
    max_ram: int | None = None,
) -> Report:
    """Export a training run, to `RUN_DIR/export` unless another folder is given.

    When the run's data set is there, the files are compared with torch on some of its images; with `fp16`, the accuracy
    is measured with and without, on `limit` of them.
    """
    from bitedge.train.engine.run import load_run

    run = load_run(Path(run_dir), checkpoint=checkpoint)
    folder = Path(out_dir) if out_dir is not None else Path(run_dir) / "export"
    return export(
        run.module,
        input_shape(run),
        folder,
        formats=formats,
        labels=run.labels,
        preprocessing=run.preprocessing,
        training=training_record(run),
        fp16=fp16,
        strict=strict,
        evaluation=_evaluation(run, data, limit if fp16 else PROOF_IMAGES),
        source={"run": os.path.relpath(Path(run_dir).resolve(), folder.resolve()), "checkpoint": checkpoint},
        max_flash=max_flash,
        max_ram=max_ram,
    )


def run_metadata(run: Run) -> tuple[tuple[str, ...], Mapping[str, Any], dict[str, Any]]:
    """Give what the artifacts of a run say beside the network: labels, preprocessing, training."""
    return tuple(run.labels), run.preprocessing, training_record(run)


def training_record(run: Run) -> dict[str, Any]:
    """Give what the artifacts say of their training: recipe, seed, data set, epoch and accuracy."""
    selected = run.training[run.checkpoint]
    tested = run.training["test"]
    measured = selected if tested is None else tested[run.checkpoint]
    return {
        "recipe": (run.folder / "recipe.toml").read_text(encoding="utf-8"),
        "recipe_name": run.recipe.name,
        "seed": run.recipe.seed,
        "data": run.recipe.data.name,
        "checkpoint": run.checkpoint,
        "epoch": selected["epoch"],
        "epochs": run.recipe.epochs,
        "accuracy": measured["accuracy"],
        "measured_on": run.training["selected_on"] if tested is None else "test",
    }


def _evaluation(run: Run, data: Path | None, limit: int | None) -> Evaluation | None:
    """Give the run's test images; None when nobody said where they are and they are not where they were."""
    from bitedge.train.errors import TrainError

    try:
        return run.evaluation(data, limit=limit)
    except TrainError:
        if data is not None:
            raise
        return None


def input_shape(run: Run) -> tuple[int, int, int]:
    """Give channels, height and width of a run's images."""
    height, width = run.preprocessing["size"]
    return len(run.preprocessing["scale"]), int(height), int(width)
