"""`bitedge bench FILE|EXPORT_DIR|--net NAME`: the rows of one network, from artifacts on disk or made on the spot."""

from __future__ import annotations

import argparse
import importlib.util
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bitedge.cli.bench import numbers, publish
from bitedge.cli.bench.engines import ENGINES, Engine
from bitedge.cli.bench.gates import Gates, parse_speedup
from bitedge.cli.bench.runner import Job, Settings, as_json, measure_rows, reference_answer
from bitedge.cli.errors import CommandError
from bitedge.cli.main import nearest
from bitedge.cli.output import note
from bitedge.runtime.benchmark import host

CHECK_IMAGES = 4  # enough to catch a wrong kernel or layout; `bitedge verify` is the thorough check
EXACT, FLOAT = 1e-3, 5e-2  # tolerances: integer networks, and networks whose float layers may tip a sign


def measure(args: argparse.Namespace, target: Path | None, say: Callable[[str], None]) -> int:
    """Measure every engine on one network, report, and check the gates."""
    names = [engine.name for engine in ENGINES]
    wanted = chosen_engines(args.engines, names)
    gates = Gates(args.max_p99_ms, parse_speedup(args.min_speedup, names), args.min_top1)
    if args.rounds < 1:
        raise CommandError(f"--rounds: expected at least 1, got {args.rounds}")
    with tempfile.TemporaryDirectory(prefix="bitedge-bench-") as scratch:
        if target is None:
            from bitedge.cli.bench.networks import build

            say(f"building {args.net} with random weights")
            target = build(args.net, Path(scratch), width=args.width, image_size=args.image_size)
        document = _rows(args, target, wanted, say)
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


def _rows(args: argparse.Namespace, target: Path, wanted: list[str], say: Callable[[str], None]) -> dict[str, Any]:
    from bitedge.runtime import Model

    folder = target if target.is_dir() else target.parent
    packed = target / "model.gguf" if target.is_dir() else target
    if not packed.exists():
        raise CommandError(f"{target}: expected a model.gguf, or a folder with one; run bitedge export first")
    model = Model(packed)
    images, labels = _images(model, args.data, folder)
    jobs, absent = _jobs(args, target, packed, wanted)
    reference = reference_answer(packed, images)
    exact = not any(node.op == "conv2d" for node in model.nodes)
    settings = Settings(rounds=args.rounds, tolerance=EXACT if exact else FLOAT)
    rows = measure_rows(jobs, images, reference, settings, say)
    if labels is not None:
        top1 = float((reference.argmax(axis=1) == labels).mean())
        rows = [row | {"top1": top1 if row["agrees"] else None} for row in rows]
    if args.profile:
        _profile(model, images, rows)
    return as_json(host(), str(model.metadata.get("general.name", packed.stem)), rows + absent)


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
    args: argparse.Namespace, target: Path, packed: Path, wanted: list[str]
) -> tuple[list[Job], list[dict[str, Any]]]:
    """The rows to measure; a peer whose artifact is not there becomes a row that says so."""
    jobs: list[Job] = []
    absent: list[dict[str, Any]] = []
    for threads in numbers("--threads", args.threads):
        for batch in numbers("--batch", args.batch):
            for engine in ENGINES:
                if engine.name not in wanted or (engine.name != "bitedge" and not target.is_dir()):
                    continue
                artifact = packed if engine.name == "bitedge" else locate(engine, target)
                if artifact is None:
                    absent.append(absent_row(engine, threads, batch))
                else:
                    jobs += [Job(engine, artifact, threads, batch, kernels) for kernels in _kernels(args, engine)]
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


def _images(model: Any, data: Path | None, folder: Path) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | None]:
    """Real test images where a data set is given, otherwise fixed noise."""
    if data is None:
        rng = np.random.default_rng(0)
        noise = rng.integers(0, 256, (CHECK_IMAGES, *model.input_shape), dtype=np.uint8)
        return (noise if model.input_kind == "uint8" else (noise.astype(np.float32) * 2 - 255) / 256), None
    run = locate(ENGINES[-1], folder)
    if run is None:
        raise CommandError(f"--data: {folder} does not say which training run it came from, so the data set is unknown")
    from bitedge.train import load_run

    images, labels = load_run(run).evaluation(data, limit=1000)
    return images, labels


def _profile(model: Any, images: np.ndarray[Any, Any], rows: list[dict[str, Any]]) -> None:
    """Attach the core's layers to its first row: milliseconds, multiply-accumulates, and their rate."""
    seconds = model.profile(images[:1], runs=50)
    for row in rows:
        if row["engine"] == "bitedge":
            row["layers"] = [
                {
                    "name": node.name,
                    "op": node.op,
                    "kernel": node.kernel,
                    "ms": 1e3 * float(time),
                    "macs": node.macs,
                    "gmacs_per_s": node.macs / time / 1e9 if time > 0 else None,
                }
                for node, time in zip(model.nodes, seconds, strict=True)
            ]
            return
