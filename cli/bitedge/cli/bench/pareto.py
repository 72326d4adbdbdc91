"""`bitedge bench pareto`: published ImageNet accuracy against time and bytes, binary networks beside mobile ones.

Every network has random weights, which take as long as trained ones; every engine has a process of its own on one
core, and all of them take turns in one run. Accuracy is what the sources state: nothing of it is measured here.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bitedge.cli.bench.engines import ENGINES
from bitedge.cli.bench.host import describe
from bitedge.cli.bench.networks import NETWORKS, build, settle
from bitedge.cli.bench.report import save_figure
from bitedge.cli.bench.runner import EngineFailed, Job, Settings, Worker, agrees, size_of, time_in_turns
from bitedge.cli.errors import CommandError
from bitedge.cli.main import nearest
from bitedge.cli.output import emit, note, table, write_atomically

HEADER = ("network", "engine", "top-1 %", "ms p50", "MB", "accuracy as stated by")
SIZE = 224


@dataclass(frozen=True)
class Peer:
    """A float network, and what is published of it in float and in 8 bits."""

    top1: float
    top1_int8: float
    source: str


SLIM = "https://github.com/tensorflow/models/tree/master/research/slim/nets"
PEERS = {
    "mobilenet_v1": Peer(70.9, 70.1, f"{SLIM}/mobilenet_v1.md"),
    "mobilenet_v2": Peer(71.8, 70.8, "https://github.com/tensorflow/tensorflow/tree/r1.15/tensorflow/contrib/quantize"),
    "mobilenet_v3_large": Peer(75.2, 73.9, f"{SLIM}/mobilenet/README.md"),
    "efficientnet_lite0": Peer(
        75.1, 74.4, "https://github.com/tensorflow/tpu/tree/master/models/official/efficientnet/lite"
    ),
}
BY_NAME = {engine.name: engine for engine in ENGINES}
FILES = {
    "onnxruntime": "float.onnx",
    "onnxruntime int8": "int8.onnx",
    "tflite xnnpack": "float.tflite",
    "tflite xnnpack int8": "int8.tflite",
}
"""What each engine runs of a mobile network; the same engine opens float and int8 files."""


def run_pareto(args: argparse.Namespace, say: Callable[[str], None]) -> int:
    """Build, measure, print the table, and write the Markdown and the chart that were asked for."""
    binary = [name for name, row in NETWORKS.items() if row.image_size == SIZE]
    wanted = args.target[1:] or [*binary, *PEERS]
    for name in wanted:
        if name not in binary and name not in PEERS:
            raise CommandError(
                f"pareto: there is no network {name!r}{nearest(name, [*binary, *PEERS])}; "
                f"known: {', '.join([*binary, *PEERS])}"
            )
    size = args.image_size or SIZE
    with tempfile.TemporaryDirectory(prefix="bitedge-pareto-") as scratch:
        jobs: list[tuple[dict[str, Any], Job, Path]] = []
        left_out: list[dict[str, str]] = []
        for name in wanted:
            say(f"building {name}")
            make = mobile_jobs if name in PEERS else binary_jobs
            try:
                jobs += make(name, Path(scratch) / name, size)
            except CommandError as error:
                left_out.append({"network": name, "reason": str(error)})
                note(f"left out: {error}")
        if not jobs:
            raise CommandError("pareto: no network could be built")
        rows = measured(jobs, Path(scratch), Settings(rounds=args.rounds), say)
    if size != SIZE:  # nothing is published for other images
        rows = [row | {"top1": None, "source": None} for row in rows]
    rows.sort(key=lambda row: row["ms"] or np.inf)
    host = describe()
    document = {
        "host": host,
        "image_size": size,
        "rows": rows,
        "left_out": left_out,
        "command": f"bitedge bench pareto --rounds {args.rounds}",
    }
    title = f"{host['cpu']}, one core, images of {size}x{size}"
    emit(args, document, f"{title}\n\n{table(HEADER, cells(rows))}")
    if args.markdown:
        write_atomically(args.markdown, markdown(title, rows))
    if args.chart and size == SIZE:
        chart(title, rows, args.chart)
    return 0


def binary_jobs(name: str, folder: Path, size: int) -> list[tuple[dict[str, Any], Job, Path]]:
    """Build a binary network, for the best kernels of this machine and, beside them, for AVX2."""
    from bitedge.runtime import available_kernels
    from bitedge.train.models.published import PUBLISHED

    export = build(name, folder, image_size=size, formats=["gguf"])
    images = folder / "images.npy"
    np.save(images, np.random.default_rng(0).integers(0, 256, (1, size, size, 3), dtype=np.uint8))
    row: dict[str, Any] = {
        "network": name,
        "kind": "binary",
        "top1": PUBLISHED[name].top1,
        "source": PUBLISHED[name].source,
    }
    names = [kernel.name for kernel in available_kernels() if kernel.built and kernel.supported]
    forced = [None, *(kernel for kernel in names if kernel == "avx2" and names[0] != "avx2")]
    packed = export / "model.gguf"
    return [
        (
            {**row, "engine": f"bitedge {kernels}" if kernels else "bitedge"},
            Job(BY_NAME["bitedge"], packed, 1, 1, kernels),
            images,
        )
        for kernels in forced
    ]


def mobile_jobs(name: str, folder: Path, size: int) -> list[tuple[dict[str, Any], Job, Path]]:
    """Build a mobile network in float and int8, for onnxruntime by torch's exporter and for TensorFlow Lite."""
    folder.mkdir()
    write_mobile(name, folder, size)
    peer = PEERS[name]
    jobs = []
    for title, file in FILES.items():
        engine = BY_NAME[title.removesuffix(" int8")]
        channels_first = file.endswith(".onnx")
        images = folder / ("nchw.npy" if channels_first else "nhwc.npy")
        row: dict[str, Any] = {
            "network": name,
            "engine": title,
            "kind": "int8" if "int8" in title else "float",
            "source": peer.source,
        }
        row["top1"] = peer.top1_int8 if "int8" in title else peer.top1
        if (folder / file).exists():
            jobs.append((row, Job(engine, folder / file, 1, 1), images))
    return jobs


def write_mobile(name: str, folder: Path, size: int) -> None:
    """Write the four files of a mobile network, and an image in both layouts."""
    import torch

    from bitedge.cli.bench import mobile
    from bitedge.export import capture
    from bitedge.export.ir.serialize import save_graph
    from bitedge.export.lowering.lower import lower

    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = getattr(mobile, name)()
    settle(module, (3, size, size), 0)
    images = np.random.default_rng(0).uniform(-1, 1, (8, size, size, 3)).astype(np.float32)
    np.save(folder / "nhwc.npy", images[:1])
    np.save(folder / "nchw.npy", images[:1].transpose(0, 3, 1, 2))
    np.save(folder / "calibration.npy", images)
    example = torch.from_numpy(images[:1].transpose(0, 3, 1, 2).copy())
    with torch.inference_mode():
        np.save(folder / "answer.npy", module(example).numpy())
    with warnings.catch_warnings():  # the exporter that needs no further package says that it is the older one
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.onnx.export(module, (example,), folder / "float.onnx", dynamo=False, input_names=["image"])
    save_graph(lower(capture(module, (3, size, size))), folder)
    for script, package in (("quantize_onnx", "onnxruntime"), ("convert_tflite", "tensorflow")):
        if importlib.util.find_spec(package) is None:
            note(f"{name}: {package} is not installed, so its files are left out: pip install 'bitedge[all]'")
            continue
        words = [sys.executable, "-m", "bitedge.cli.bench.peers", script, str(folder)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CommandError(f"{name}: {script} failed: {done.stderr.strip().splitlines()[-1:]}")


def measured(
    jobs: Sequence[tuple[dict[str, Any], Job, Path]], folder: Path, settings: Settings, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Open every engine and time all of them in turns."""
    with ExitStack() as stack:
        live: list[tuple[Worker, dict[str, Any]]] = []
        rows = []
        for number, (row, job, images) in enumerate(jobs):
            worker = Worker(job, images, folder / f"{number}.log")
            stack.callback(worker.stop)
            row |= {"bytes": size_of(job.artifact), "ms": None}
            rows.append(row)
            try:
                worker.ready()
                if row["kind"] == "float":
                    _check(worker, images.with_name("answer.npy"), folder / f"{number}.npy")
                live.append((worker, row))
            except EngineFailed as error:
                row["reason"] = str(error)
        time_in_turns(live, settings, say)
    for row in rows:
        row["ms"] = row["ms"] and row["ms"]["p50"]
    keys = ("network", "engine", "kind", "top1", "ms", "bytes", "source", "reason")
    return [{key: row.get(key) for key in keys} for row in rows]


def _check(worker: Worker, expected: Path, path: Path) -> None:
    """Refuse an engine whose answer is not torch's: it would be timed for something else."""
    worker.ask(do="check", answer=str(path))
    if not agrees(np.load(path), np.load(expected), Settings.tolerance):
        raise EngineFailed("its answer differs from torch's")


def cells(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """The rows as text."""
    return [
        (
            row["network"],
            row["engine"],
            f"{row['top1']:.1f}" if row["top1"] else "-",
            f"{row['ms']:.2f}" if row["ms"] else str(row["reason"]),
            f"{row['bytes'] / 2**20:.2f}",
            row["source"] or "-",
        )
        for row in rows
    ]


def markdown(title: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """The table as Markdown."""
    lines = [title, "", "| " + " | ".join(HEADER) + " |", "|---|---|---:|---:|---:|---|"]
    for *row, source in cells(rows):
        link = f"[source]({source})" if source.startswith("http") else source
        lines.append("| " + " | ".join([*row, link]) + " |")
    return "\n".join(lines) + "\n"


STYLES = {"binary": ("o", "#0a7d5a"), "int8": ("s", "#c2571a"), "float": ("^", "#7b8794")}


def chart(title: str, rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw accuracy against milliseconds and against bytes: the best engine of each network and kind."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    best: dict[tuple[str, str], Mapping[str, Any]] = {}
    for row in rows:
        key = (row["network"], row["kind"])
        if row["ms"] and row["top1"] and (key not in best or row["ms"] < best[key]["ms"]):
            best[key] = row
    figure, axes = pyplot.subplots(1, 2, figsize=(12, 5), dpi=120, sharey=True)
    for axis, column, unit, label in (
        (axes[0], "ms", 1, "milliseconds per image, one core"),
        (axes[1], "bytes", 2**20, "MB of the file"),
    ):
        for kind, (mark, colour) in STYLES.items():
            shown = [(row[column] / unit, row["top1"], row["network"]) for row in best.values() if row["kind"] == kind]
            axis.scatter([x for x, _, _ in shown], [y for _, y, _ in shown], marker=mark, color=colour, label=kind)
            for x, y, name in shown:
                axis.annotate(name, (x, y), (4, 4), textcoords="offset points", fontsize=7)
        axis.set_xscale("log")
        axis.set_xlabel(label)
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("ImageNet top-1 %, as published")
    axes[0].legend()
    figure.suptitle(title)
    save_figure(figure, path)
