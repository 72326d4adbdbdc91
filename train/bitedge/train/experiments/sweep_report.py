"""The result of a study: a table as CSV and Markdown, and a picture with one panel per varied key."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from bitedge.train.engine.checkpoint import write_bytes, write_text


def finished(study: optuna.Study) -> list[FrozenTrial]:
    """The finished trials, best first."""
    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return sorted(trials, key=lambda trial: (-(trial.value or 0.0), trial.number))


def study_table(study: optuna.Study) -> tuple[list[str], list[list[Any]]]:
    """Header and rows: trial, its values, accuracy by which it is ranked, test accuracy, folder."""
    trials = finished(study)
    keys = list(trials[0].params) if trials else []
    header = ["trial", *keys, "accuracy", "test", "folder"]
    rows = [
        [
            trial.number,
            *(trial.params[key] for key in keys),
            f"{trial.value:.4f}",
            f"{trial.user_attrs['test']:.4f}",
            trial.user_attrs["folder"],
        ]
        for trial in trials
    ]
    return header, rows


def write_report(study: optuna.Study, title: str, folder: Path) -> None:
    """Write `study.csv`, `study.md` and `study.png`."""
    header, rows = study_table(study)
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    write_text(folder / "study.csv", buffer.getvalue())
    lines = [f"# {title}", "", _markdown(header), _markdown(["---"] * len(header)), *map(_markdown, rows)]
    write_text(folder / "study.md", "\n".join(lines) + "\n")
    if rows:
        _plot(finished(study), title, folder / "study.png")


def _markdown(cells: Sequence[Any]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def along(trials: Sequence[FrozenTrial], key: str) -> list[FrozenTrial]:
    """The trials that differ from the most common values in this key alone, in its order: one arm of a cross."""
    common = {name: Counter(trial.params[name] for trial in trials).most_common(1)[0][0] for name in trials[0].params}
    arm = [t for t in trials if all(t.params[name] == common[name] for name in common if name != key)]
    return sorted(arm, key=lambda trial: trial.params[key])


def _plot(trials: Sequence[FrozenTrial], title: str, path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    keys = list(trials[0].params)
    figure = Figure(figsize=(4 * len(keys), 3.5), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    for axes, key in zip(figure.subplots(1, len(keys), squeeze=False, sharey=True).flat, keys, strict=True):
        values = [trial.params[key] for trial in trials]
        numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        arm = along(trials, key) if numeric else []
        if len(arm) > 2:  # a cross: the other trials vary other keys and say nothing about this one
            axes.plot([trial.params[key] for trial in arm], [trial.value for trial in arm], marker="o")
        else:
            axes.scatter(values if numeric else list(map(str, values)), [trial.value for trial in trials], s=16)
        if numeric and min(values) > 0 and max(values) >= 100 * min(values):
            axes.set_xscale("log")
        axes.set_xlabel(key)
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("accuracy")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100, metadata={"Software": None})
    write_bytes(path, buffer.getvalue())
