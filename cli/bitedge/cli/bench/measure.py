"""`bitedge bench FILE|EXPORT_DIR|--net NAME`: the rows of one network, from artifacts on disk or made on the spot."""

from __future__ import annotations

import argparse
import importlib.util
import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bitedge.cli.bench import native, numbers, publish
from bitedge.cli.bench.engines import ENGINES, Engine
from bitedge.cli.bench.gates import Gates, parse_speedup
from bitedge.cli.bench.host import describe
from bitedge.cli.bench.profile import with_times
from bitedge.cli.bench.runner import Job, Settings, as_json, measure_rows, reference_answer
from bitedge.cli.errors import CommandError
from bitedge.cli.main import nearest
from bitedge.cli.output import note

TOP1_IMAGES = 1000
FLOAT_TFLITE = "model.float.tflite"


def measure(args: argparse.Namespace, target: Path | None, say: Callable[[str], None]) -> int:
    """Measure every engine on one network, report, and check the gates."""
    names = [engine.name for engine in ENGINES]
    wanted = chosen_engines(args.engines, names)
    gates = Gates(args.max_p99_ms, parse_speedup(args.min_speedup, names), args.min_top1)
    if args.rounds < 1:
        raise CommandError(f"--rounds: expected at least 1, got {args.rounds}")
    if args.profile:
        native.find()  # before anything is measured
    with tempfile.TemporaryDirectory(prefix="bitedge-bench-") as scratch:
        if target is None:
            from bitedge.cli.bench.networks import build

            say(f"building {args.net} with random weights")
            target = build(args.net, Path(scratch), width=args.width, image_size=args.image_size)
        document = _rows(args, target, wanted, Path(scratch), say)
    document["command"] = _command(args, target)
    publish(args, f"{document['rows'][0]['net']}", document)
    breaches = gates.breaches(document["rows"])
    for breach in breaches:
        note(f"bitedge bench: {breach}")
    return 1 if breaches else 0


def _command(args: argparse.Namespace, target: Path) -> str:
    """The command that gives this report again."""
    what = f"--net {args.net}" if args.net else str(target)
    size = f" --width {args.width}" if args.width else ""
    size += f" --image-size {args.image_size}" if args.image_size else ""
    return f"bitedge bench {what}{size} --threads {args.threads} --batch {args.batch} --rounds {args.rounds}"


def _rows(
    args: argparse.Namespace, target: Path, wanted: list[str], scratch: Path, say: Callable[[str], None]
) -> dict[str, Any]:
    from bitedge.runtime import Model

    folder = target if target.is_dir() else target.parent
    packed = target / "model.gguf" if target.is_dir() else target
    if not packed.exists():
        raise CommandError(f"{target}: expected a model.gguf, or a folder with one; run bitedge export first")
    model = Model(packed)
    model.check()
    images = steady_images(model)
    real, labels = real_images(folder, args.data) if args.data else (images[:0], None)
    reason = None
    if "tflite xnnpack" in wanted and target.is_dir():
        say("converting the network for TensorFlow Lite")
        reason = make_float_tflite(target, scratch)
    jobs, absent = _jobs(args, [target, scratch], packed, wanted)
    if reason:
        absent = [row | ({"status": "failed", "reason": reason} if "tflite" in row["engine"] else {}) for row in absent]
    rows = measure_rows(
        jobs,
        np.concatenate([images, real]),
        reference_answer(packed, images),
        Settings(rounds=args.rounds),
        say,
        labels=labels,
    )
    if args.profile:
        _profile(packed, rows)
    return as_json(describe(), str(model.metadata.get("general.name", packed.stem)), rows + absent)


def chosen_engines(text: str | None, names: list[str]) -> list[str]:
    """The engines that `--engines` names, or all."""
    if text is None:
        return names
    for name in (wanted := text.split(",")):
        if name not in names:
            raise CommandError(
                f"--engines: there is no engine {name!r}{nearest(name, names)}; known: {', '.join(names)}"
            )
    return wanted


def _jobs(
    args: argparse.Namespace, folders: list[Path], packed: Path, wanted: list[str]
) -> tuple[list[Job], list[dict[str, Any]]]:
    """The rows to measure; a peer whose artifact is in none of the folders becomes a row that says so."""
    jobs: list[Job] = []
    absent: list[dict[str, Any]] = []
    for threads in numbers("--threads", args.threads):
        for batch in numbers("--batch", args.batch):
            for engine in ENGINES:
                if engine.name not in wanted or (engine.name != "bitedge" and not folders[0].is_dir()):
                    continue
                found = [packed] if engine.name == "bitedge" else [locate(engine, folder) for folder in folders]
                artifact = next((path for path in found if path is not None), None)
                if artifact is None:
                    absent.append(absent_row(engine, threads, batch))
                else:
                    jobs += [Job(engine, artifact, threads, batch, kernels) for kernels in _kernels(args, engine)]
    if args.profile and jobs and jobs[0].engine.name == "bitedge":
        jobs[0] = replace(jobs[0], profile=True)
    return jobs, absent


def absent_row(engine: Engine, threads: int, batch: int) -> dict[str, Any]:
    """The row of an engine that has nothing to run."""
    installed = importlib.util.find_spec(engine.package) is not None
    reason = f"no {engine.artifact} in this export" if installed else engine.install
    row: dict[str, Any] = dict.fromkeys(("agrees", "ms", "images_per_s", "bytes", "peak_rss"))
    return (
        row
        | {"engine": engine.name, "threads": threads, "batch": batch, "reason": reason}
        | {"status": "absent" if installed else "missing"}
    )


def locate(engine: Engine, folder: Path) -> Path | None:
    """The artifact that an engine runs, or None; torch runs the training run that the export came from."""
    if engine.artifact != "run":
        path = folder / engine.artifact
        return path if path.exists() else None
    report = folder / "report.json"
    source = json.loads(report.read_text()).get("source") if report.exists() else None
    recorded = source.get("run") if source else None
    return (folder / recorded).resolve() if recorded and (folder / recorded / "model.json").exists() else None


def _kernels(args: argparse.Namespace, engine: Engine) -> list[str | None]:
    if engine.name != "bitedge" or args.kernels is None:
        return [None]
    if args.kernels != "all":
        return [args.kernels]
    from bitedge.runtime import available_kernels

    return [None, *(kernel.name for kernel in available_kernels() if kernel.built and kernel.supported)]


def steady_images(model: Any) -> np.ndarray[Any, Any]:
    """The inputs of the golden vectors, which are the same for every engine, and known to be steady.

    A sign of nearly 0 turns with any engine's own order of summation, so an image that has one fails a correct engine.
    The exporter chose these inputs so that the answer stays when float weights change (`bitedge.export.verify.golden`).
    """
    from bitedge.export.ir.graph import Kind, Value
    from bitedge.export.verify.golden import golden_input

    value = Value("input", Kind(model.input_kind), tuple(model.input_shape))
    seed, count = (int(model.metadata[f"bitedge.golden.{key}"]) for key in ("seed", "count"))
    return np.concatenate([golden_input(value, seed + n) for n in range(count)])


def real_images(folder: Path, data: Path) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Test images and labels of the data set that the export's training run was trained on."""
    run = locate(ENGINES[-1], folder)
    if run is None:
        raise CommandError(f"--data: {folder} does not say which training run it came from, so the data set is unknown")
    from bitedge.train import load_run

    images, labels = load_run(run).evaluation(data, limit=TOP1_IMAGES)
    return images, labels


def make_float_tflite(target: Path, folder: Path) -> str | None:
    """Convert an export's network to float TensorFlow Lite, for measuring only; gives the reason when that failed.

    Without TensorFlow, or without the training run that the export came from, there is nothing to convert.
    """
    if (target / FLOAT_TFLITE).exists() or importlib.util.find_spec("tensorflow") is None:
        return None
    if locate(ENGINES[-1], target) is None:
        return None
    from bitedge.export.errors import ExportError
    from bitedge.export.formats.tflite.float32 import write_float
    from bitedge.export.verify.folder import relower

    try:
        write_float(relower(target)[2], folder / FLOAT_TFLITE)
    except ExportError as error:
        return str(error)
    return None


def _profile(packed: Path, rows: list[dict[str, Any]]) -> None:
    """Attach the core's layers to the row that timed them; the bare loop's rate comes from the native tool."""
    for row in rows:
        if row.get("node_ms"):
            kernels = ["--kernels", row["engine"].split()[1]] if " " in row["engine"] else []
            words = ["--threads", str(row["threads"]), "--runs", "20", "--profile", "--json", *kernels]
            layers = native.ask(str(packed), *words)["rows"][0]["layers"][:-1]
            row["layers"] = with_times(layers, row["node_ms"], row["ms"]["p50"] / row["batch"])
