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


STAGES = (
    Stage("train", "train", lambda p: f"bitedge train --recipe {p.recipe} --out {p.run}", train),
    Stage("export", "export", lambda p: f"bitedge export {p.run} --out {p.export}", export),
    Stage("verify", "verify", lambda p: f"bitedge verify {p.export}", verify),
    Stage("bench", "measure", lambda p: f"bitedge bench {p.export}", bench),
)
