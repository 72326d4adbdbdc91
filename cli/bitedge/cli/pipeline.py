"""Train, export, verify, measure and report in one go.

A stage that was done is skipped; one that failed says how to resume.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bitedge.cli.errors import CommandError
from bitedge.cli.output import emit, note, table, write_atomically
from bitedge.cli.stages import STAGES, Plan, Stage, StageFailed, data_words

NAMES = tuple(stage.name for stage in STAGES)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take the recipe, the folders, and which stages to run."""
    add = parser.add_argument
    add("--recipe", required=True, metavar="NAME", help="a recipe of `bitedge train --list`, or a TOML file")
    add("--data", type=Path, metavar="DIR", help="the data set, where the recipe needs one")
    add("--out", type=Path, default=None, metavar="DIR", help="where everything goes (default: pipelines/NAME)")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="change a value of the recipe")
    add("--formats", metavar="A,B", help="only these artifacts (default: all)")
    add(
        "--from",
        dest="start",
        choices=NAMES,
        metavar="STAGE",
        help=f"do this stage again, and all after it: {', '.join(NAMES)}",
    )
    add("--until", choices=NAMES, default=NAMES[-1], metavar="STAGE", help="stop after this stage")


def pipeline(
    plan: Plan,
    *,
    start: str | None = None,
    until: str = NAMES[-1],
    stages: Sequence[Stage] = STAGES,
    say: Callable[[str], None] = note,
) -> dict[str, Any]:
    """Run the stages and return the record that is also kept in `pipeline.json`.

    A stage is skipped when the record says that it was done for the same recipe, data and overrides and no earlier
    stage ran anew. `start` skips all stages before it, and does it and all after it again.
    """
    first, last = NAMES.index(start or NAMES[0]), NAMES.index(until)
    if first > last:
        raise CommandError(f"--from {start} comes after --until {until}; the stages are {', '.join(NAMES)}")
    plan.out.mkdir(parents=True, exist_ok=True)
    path = plan.out / "pipeline.json"
    asked = _fingerprint(plan)
    record = _read(path, asked)
    anew = False
    for number, stage in enumerate(stages[: last + 1]):
        done = record["stages"].get(stage.name, {}).get("status") == "done"
        if number < first or (done and start is None and not anew):
            say(f"[{number + 1}/{last + 1}] {stage.name}: {'already done' if done else 'skipped'}")
            continue
        anew = True
        say(f"[{number + 1}/{last + 1}] {stage.name}: {stage.command(plan)}")
        begun = time.perf_counter()
        try:
            result = stage.call(plan)
        except BaseException as error:
            _keep(path, record, stage.name, "failed", begun, {"reason": str(error) or type(error).__name__})
            say(f"{stage.name} did not finish; to go on from here: bitedge pipeline {_words(plan)} --from {stage.name}")
            raise
        _keep(path, record, stage.name, "done", begun, result)
    return record


def _fingerprint(plan: Plan) -> str:
    """Tell one order from another: the recipe's text, not only its name, decides what a stage would do."""
    recipe = Path(plan.recipe)
    text = recipe.read_text() if recipe.suffix == ".toml" and recipe.exists() else plan.recipe
    words = (text, str(plan.data), *plan.overrides, *(plan.formats or ("all",)))
    return hashlib.sha256("\0".join(words).encode()).hexdigest()


def _read(path: Path, asked: str) -> dict[str, Any]:
    fresh: dict[str, Any] = {"asked": asked, "stages": {}}
    if not path.exists():
        return fresh
    try:
        record: dict[str, Any] = json.loads(path.read_text())
    except ValueError:
        raise CommandError(f"{path}: not a record of a pipeline; delete it or choose another --out") from None
    return record if record.get("asked") == asked else fresh


def _keep(path: Path, record: dict[str, Any], name: str, status: str, begun: float, result: Mapping[str, Any]) -> None:
    seconds = round(time.perf_counter() - begun, 3)
    record["stages"][name] = {"status": status, "seconds": seconds, "result": dict(result)}
    write_atomically(path, json.dumps(record, indent=2) + "\n")


def _words(plan: Plan) -> str:
    words = [f"--recipe {plan.recipe}", f"--out {plan.out}"]
    words += data_words(plan)
    words += [f"--set {pair}" for pair in plan.overrides]
    words += [f"--formats {','.join(plan.formats)}"] if plan.formats else []
    return " ".join(words)


def summary(plan: Plan, record: Mapping[str, Any]) -> str:
    """The table at the end, and the commands to try next."""
    rows = [
        (name, stage["status"], f"{stage['seconds']:.1f}", _headline(name, stage["result"]))
        for name, stage in record["stages"].items()
    ]
    page = plan.out / "report.html"
    commands = [
        *([f"xdg-open {page}"] if page.exists() else []),
        f"bitedge inspect {plan.export / 'model.gguf'}",
        f"bitedge predict {plan.export / 'model.gguf'} IMAGE.png",
        f"bitedge serve {plan.export}",
    ]
    return "\n".join(
        [table(("stage", "status", "seconds", "result"), rows), "", "Next:", *(f"  {c}" for c in commands)]
    )


def _headline(name: str, result: Mapping[str, Any]) -> str:
    """The one thing to know of a stage."""
    if "reason" in result:
        return str(result["reason"])
    if name == "train":
        return f"{100 * result['test']['best']['accuracy']:.2f} % of {result['test']['best']['images']} test images"
    if name == "export":
        return ", ".join(f"{file} {size / 1024:.0f} kB" for file, size in result["files"].items())
    if name == "verify":
        return str(result["summary"])
    if name == "report":
        return str(result["file"])
    rows = [row for row in result["rows"] if row["ms"]]
    return ", ".join(f"{row['engine']} {row['ms']['p50']:.3f} ms" for row in rows)


def run(args: argparse.Namespace) -> int:
    """Run the pipeline from the command line."""
    out = args.out or Path("pipelines") / Path(args.recipe).stem
    formats: Sequence[str] | None = args.formats.split(",") if args.formats else None
    plan = Plan(args.recipe, out, args.data, tuple(args.set), tuple(formats) if formats else None)
    try:
        record = pipeline(plan, start=args.start, until=args.until)
    except StageFailed as error:
        note(f"bitedge pipeline: {error}")
        return 1
    emit(args, record, summary(plan, record))
    return 0
