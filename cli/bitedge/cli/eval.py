"""Measure the accuracy of a training run, or of a model in the box.

bitedge eval runs/digits
bitedge eval cifar10 --data DIR --everywhere      in torch, the core, onnxruntime and Larq Compute Engine
bitedge eval runs/first --data DIR --checkpoint last --split validation
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from bitedge.cli.errors import CommandError
from bitedge.cli.output import emit, table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take the run, the checkpoint and the split."""
    parser.add_argument(
        "run", type=Path, metavar="RUN_DIR|NAME", help="a run folder, or the name of a model in the box"
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="the data set (default: where the run found it)")
    parser.add_argument("--checkpoint", choices=("best", "last"), default="best", help="which weights (default: best)")
    parser.add_argument("--split", choices=("test", "validation", "train"), default="test", help="which images")
    parser.add_argument(
        "--everywhere", action="store_true", help="export it and measure every artifact on all test images"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: auto)")


def everywhere(args: argparse.Namespace) -> int:
    """Export to a temporary folder and print the accuracy of torch and of every artifact, on the same images."""
    from bitedge.export import export_run, verify_export
    from bitedge.train.engine.run import find_run

    if args.split != "test" or args.checkpoint != "best":
        raise CommandError("--everywhere measures the best weights on the test images: drop --split and --checkpoint")
    with tempfile.TemporaryDirectory(prefix="bitedge-eval-") as folder:
        report = export_run(find_run(args.run), Path(folder))
        verdict = verify_export(folder, data=args.data, limit=None)
    rows = [("torch", "-", verdict.images, f"{verdict.torch_accuracy:.2%}", "")]
    for engine in verdict.engines:
        accuracy = "-" if engine.accuracy is None else f"{engine.accuracy:.2%}"
        rows.append((engine.engine, engine.file, engine.images, accuracy, engine.skipped or engine.breach or ""))
    rows += [(name, "-", 0, "-", reason) for name, reason in report.failures.items()]
    emit(args, {"run": str(args.run), **verdict.as_dict()}, table(("engine", "file", "images", "top-1", ""), rows))
    return 0 if verdict.passed and not report.failures else 1


def run(args: argparse.Namespace) -> int:
    """Print loss, top-1 and top-5 accuracy."""
    if args.everywhere:
        return everywhere(args)
    from bitedge.train.engine.distributed import Group, pick_device
    from bitedge.train.engine.evaluate import evaluate
    from bitedge.train.engine.run import load_run

    loaded = load_run(args.run, checkpoint=args.checkpoint)
    group = Group(0, 1, pick_device(args.device))
    dataset = loaded.dataset(args.data)
    loader = dataset.loader(args.split, batch_size=250, device=group.device, shuffle=False)
    score = evaluate(loaded.module.to(group.device), loader, group)
    data = {"run": str(args.run), "checkpoint": args.checkpoint, "split": args.split, **score.as_dict()}
    row = (args.checkpoint, args.split, score.images, f"{score.accuracy:.2%}", f"{score.top5:.2%}", f"{score.loss:.4f}")
    emit(args, data, table(("checkpoint", "split", "images", "top-1", "top-5", "loss"), [row]))
    return 0
