"""The stages of the pipeline, in the order of the data's way: each calls one room and says what it made."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Plan:
    """What the pipeline was asked to do; every stage reads it and finds the earlier stages' results in its folders."""

    recipe: str
    out: Path
    data: Path | None = None
    overrides: tuple[str, ...] = ()
    formats: tuple[str, ...] | None = None

    @property
    def run(self) -> Path:
        """The training run."""
        return self.out / "run"

    @property
    def export(self) -> Path:
        """The artifacts."""
        return self.out / "export"


@dataclass(frozen=True)
class Stage:
    """A stage: its name, what it does, the command that does the same by hand, and whether it must be done again."""

    name: str
    does: str
    command: Callable[[Plan], str]
    call: Callable[[Plan], Mapping[str, Any]]


class StageFailed(Exception):
    """A stage ran and its check did not hold."""


def data_words(plan: Plan) -> list[str]:
    """The data set, as options of a command."""
    return [f"--data {plan.data}"] if plan.data else []


def train_words(plan: Plan) -> list[str]:
    """The training as a command."""
    changes = [f"--set {pair}" for pair in plan.overrides]
    return ["bitedge train", f"--recipe {plan.recipe}", *data_words(plan), *changes, f"--out {plan.run}"]


def train(plan: Plan) -> dict[str, Any]:
    """Train, or continue an interrupted training."""
    from bitedge.train import fit

    run = fit(
        plan.recipe, out=plan.run, data=plan.data, resume=(plan.run / "recipe.toml").exists(), overrides=plan.overrides
    )
    return {"folder": str(plan.run), **run.training}


def export(plan: Plan) -> dict[str, Any]:
    """Write every artifact."""
    from bitedge.export import export_run

    report = export_run(plan.run, plan.export, formats=plan.formats)
    if report.failures:
        raise StageFailed("; ".join(f"{name}: {reason}" for name, reason in report.failures.items()))
    return {"files": report.sizes, "compression": report.compression}


def verify(plan: Plan) -> dict[str, Any]:
    """Compare every artifact with torch."""
    from bitedge.export import verify_export

    verdict = verify_export(plan.export, data=plan.data)
    if not verdict.passed:
        raise StageFailed(verdict.breach)
    return verdict.as_dict()


def bench(plan: Plan) -> dict[str, Any]:
    """Measure every artifact."""
    import json

    from bitedge.cli import bench as verb

    parser = argparse.ArgumentParser()
    parser.add_argument("--json")
    verb.add_arguments(parser)
    report = plan.out / "bench.json"
    if verb.run(parser.parse_args([str(plan.export), "--json", str(report), "--rounds", "5"])):
        raise StageFailed(f"an engine failed or gave another answer; see {report}")
    document: dict[str, Any] = json.loads(report.read_text())
    return document


def report(plan: Plan) -> dict[str, Any]:
    """Write the page about everything."""
    import json

    from bitedge.cli.report import write_report
    from bitedge.cli.report.examples import classify_examples

    kept = plan.out / "pipeline.json"
    stages = json.loads(kept.read_text(encoding="utf-8"))["stages"] if kept.exists() else {}
    missing = [stage.name for stage in STAGES[:-1] if stages.get(stage.name, {}).get("status") != "done"]
    if missing:
        raise StageFailed(f"nothing to report before {missing[0]} is done: run the pipeline with --from {missing[0]}")
    packed = plan.export / "model.gguf"
    write_report(
        plan.out / "report.html",
        run=plan.run,
        export=plan.export,
        stages=stages,
        commands=[stage.command(plan) for stage in STAGES[:-1]],
        examples=classify_examples(plan.run, packed, plan.data) if packed.exists() else (),
    )
    return {"file": str(plan.out / "report.html")}


STAGES = (
    Stage("train", "train", lambda p: " ".join(train_words(p)), train),
    Stage("export", "export", lambda p: f"bitedge export {p.run} --out {p.export}", export),
    Stage("verify", "verify", lambda p: " ".join(["bitedge verify", str(p.export), *data_words(p)]), verify),
    Stage("bench", "measure", lambda p: f"bitedge bench {p.export}", bench),
    Stage("report", "report", lambda p: f"writing {p.out / 'report.html'}", report),
)
