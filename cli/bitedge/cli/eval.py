"""Measure the accuracy of a training run.

bitedge eval runs/digits
bitedge eval runs/first --data DIR --checkpoint last --split validation
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bitedge.cli.output import emit, table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take the run, the checkpoint and the split."""
    parser.add_argument("run", type=Path, metavar="RUN_DIR", help="a run folder, as `bitedge train` writes it")
    parser.add_argument("--data", type=Path, metavar="DIR", help="the data set (default: where the run found it)")
    parser.add_argument("--checkpoint", choices=("best", "last"), default="best", help="which weights (default: best)")
    parser.add_argument("--split", choices=("test", "validation", "train"), default="test", help="which images")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: auto)")


def run(args: argparse.Namespace) -> int:
    """Print loss, top-1 and top-5 accuracy."""
    from bitedge.train.distributed import Group, pick_device
    from bitedge.train.evaluate import evaluate
    from bitedge.train.run import load_run

    loaded = load_run(args.run, checkpoint=args.checkpoint)
    group = Group(0, 1, pick_device(args.device))
    dataset = loaded.dataset(args.data)
    loader = dataset.loader(args.split, batch_size=250, device=group.device, shuffle=False)
    score = evaluate(loaded.module.to(group.device), loader, group)
    data = {"run": str(args.run), "checkpoint": args.checkpoint, "split": args.split, **score.as_dict()}
    row = (args.checkpoint, args.split, score.images, f"{score.accuracy:.2%}", f"{score.top5:.2%}", f"{score.loss:.4f}")
    emit(args, data, table(("checkpoint", "split", "images", "top-1", "top-5", "loss"), [row]))
    return 0
