"""Write the page: what was trained, what it became, whether it is the same, how fast it is, and how to get it again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from bitedge.cli.output import write_atomically
from bitedge.cli.report.charts import bars, lines
from bitedge.cli.report.examples import Example, gallery

STYLE = Path(__file__).with_name("page.css")


def write_report(
    path: Path,
    *,
    run: Path,
    export: Path,
    stages: Mapping[str, Any],
    commands: Sequence[str],
    examples: Sequence[Example],
) -> None:
    """Write the page of a finished pipeline from its run folder, its export folder and the results of its stages."""
    recipe = (run / "recipe.toml").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    environment = json.loads((run / "environment.json").read_text(encoding="utf-8"))
    conversion = json.loads((export / "report.json").read_text(encoding="utf-8"))
    about = stages["train"]["result"]
    parts = [
        f"<h1>{escape(conversion['network'])}, recipe {escape(about['recipe'])}</h1>",
        f'<p class="lead">{_lead(about, stages)}</p>',
        "<h2>Examples</h2>",
        gallery(examples),
        "<h2>Training</h2>",
        training(rows),
        "<h2>Conversion</h2>",
        conversion_table(conversion),
        "<h2>The same answer everywhere</h2>",
        parity(stages["verify"]["result"]),
        "<h2>Latency</h2>",
        latency(stages["bench"]["result"]),
        "<h2>Commands</h2>",
        f"<pre>{escape(chr(10).join(commands))}</pre>",
        f"<h2>Environment</h2><pre>{escape(json.dumps(environment, indent=2))}</pre>",
        f"<h2>Recipe</h2><pre>{escape(recipe)}</pre>",
    ]
    title = f"bitedge: {escape(about['recipe'])}"
    write_atomically(
        path,
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>\n{STYLE.read_text(encoding='utf-8')}</style>\n"
        + "\n".join(parts)
        + "\n</html>\n",
    )


def _lead(about: Mapping[str, Any], stages: Mapping[str, Any]) -> str:
    best, files = about["test"]["best"], stages["export"]["result"]["files"]
    size = files.get("model.gguf")
    packed = f"; packed file {size / 1024:.0f} kB" if size else ""
    return (
        f"{100 * best['accuracy']:.2f} % of {best['images']:,} test images, epoch {about['best']['epoch']} of "
        f"{about['epochs']} chosen by {about['selected_on']}, seed {about['seed']}{packed}"
    )


def training(rows: Sequence[Mapping[str, Any]]) -> str:
    """Curves of accuracy, loss, flips and hyper-parameters."""
    split = rows[-1]["split"]
    drawn = [
        lines(
            "accuracy",
            {"training": [r["train_accuracy"] for r in rows], str(split): [r["accuracy"] for r in rows]},
        ),
        lines("loss", {"training": [r["train_loss"] for r in rows], str(split): [r["loss"] for r in rows]}),
    ]
    if "flip_ratio" in rows[-1]:
        drawn.append(lines("binary weights that flip per step", {"share": [r["flip_ratio"] for r in rows]}, log=True))
    if "gamma" in rows[-1]:
        drawn.append(lines("gamma", {"gamma": [r["gamma"] for r in rows]}, log=True))
    return f'<div class="charts">{"".join(drawn)}</div>'


def conversion_table(report: Mapping[str, Any]) -> str:
    """One row for every layer: what it became, and what that saves."""
    rows = [
        (
            layer["layer"],
            layer["operator"],
            "x".join(map(str, layer["shape"])),
            layer["precision"],
            f"{layer['parameters']:,}",
            f"{layer['bytes_before']:,}",
            f"{layer['bytes_after']:,}",
            f"{layer['macs']:,}",
            layer["why"],
        )
        for layer in report["layers"]
    ]
    header = ("layer", "operator", "output", "precision", "parameters", "bytes before", "after", "MACs", "why")
    return html_table(header, rows)


def parity(verdict: Mapping[str, Any]) -> str:
    """Every artifact against torch."""
    rows = [
        (
            engine["engine"],
            engine["file"],
            "-" if engine["top1_agreement"] is None else f"{100 * engine['top1_agreement']:.2f} %",
            "-" if engine["accuracy"] is None else f"{100 * engine['accuracy']:.2f} %",
            "-" if engine["logit_error"] is None else f"{engine['logit_error']:.1e}",
            f"{sum(layer['differing'] for layer in engine['layers']):,}" if engine["layers"] else "-",
            engine["skipped"] or engine["breach"] or "",
        )
        for engine in verdict["engines"]
    ]
    header = ("engine", "file", "same top-1", "accuracy", "logit error", "differing bits", "")
    return f"<p>{escape(verdict['summary'])}</p>" + html_table(header, rows)


def latency(report: Mapping[str, Any]) -> str:
    """Every engine in the same run, as bars and as a table."""
    rows = [row for row in report["rows"] if row["ms"]]
    chart = bars(
        "median milliseconds per image, batch 1",
        {
            f"{row['engine']}, {row['threads']} thr." if row["threads"] > 1 else row["engine"]: row["ms"]["p50"]
            for row in rows
        },
        "ms",
    )
    cells = [
        (
            row["engine"],
            row["status"],
            str(row["threads"]),
            *(f"{row['ms'][key]:.3f}" if row["ms"] else "-" for key in ("min", "p50", "p99")),
            f"{row['images_per_s']:.0f}" if row["images_per_s"] else "-",
            f"{row['bytes'] / 1024:.0f}" if row["bytes"] else "-",
        )
        for row in report["rows"]
    ]
    host = report["host"]
    machine = escape(f"{host['cpu']}, {host['cores']} cores, {host['system']}")
    where = f"<p>{machine}: <code>{escape(report['command'])}</code></p>"
    header = ("engine", "status", "threads", "ms min", "ms p50", "ms p99", "images/s", "kB")
    return f'<div class="charts">{chart}</div>{where}{html_table(header, cells)}'


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose numbers are set flush right."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join(
        "<tr>"
        + "".join(f"<td{' class=number' if cell[:1].isdigit() else ''}>{escape(cell)}</td>" for cell in row)
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
