"""`make bench-serve`: how much the service costs, and what it does when there is too much to do.

Run as `python -m bench.run` in this folder's parent. Needs Debian's wrk and nghttp2-client (h2load). Everything runs on
this machine, over loopback, for two minutes. The table goes to build/bench-serve/table.md, and with --docs into
docs/serving.md as well.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.overload import Overload, overload
from bench.programs import Program, bitedge, free_port, noop, running, wrk

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "bench-serve"
DOCS = ROOT / "docs" / "serving.md"
MARKS = ("<!-- bench-serve: begin -->", "<!-- bench-serve: end -->")
LITSERVE = "litserve==0.2.19"


def prepare() -> tuple[Path, Path, Path]:
    """A small and a wide network (the speed does not depend on the weights), and a picture."""
    import numpy as np
    import torch
    from PIL import Image

    from bitedge.export import export
    from bitedge.train.models import BinaryNet

    geometry: dict[str, Any] = {"size": [32, 32], "resize": None, "interpolation": "bilinear"}
    geometry |= {"scale": [2 / 256] * 3, "offset": [-255 / 256] * 3}
    formats: tuple[str, ...]
    for name, width, dense, formats in (("small", 32, 128, ("gguf", "onnx")), ("wide", 384, 1024, ("gguf",))):
        if not (WORK / name / "model.gguf").exists():
            torch.manual_seed(0)
            network = BinaryNet(width=width, dense=dense).eval()
            export(network, (1, 3, 32, 32), WORK / name, formats=formats, preprocessing=geometry)
    rng = np.random.default_rng(0)
    smooth = Image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8)).resize((32, 32), Image.Resampling.BICUBIC)
    smooth.save(WORK / "picture.png")
    return WORK / "small", WORK / "wide", WORK / "picture.png"


def throughput(small: Path, picture: Path, seconds: int, rounds: int) -> dict[str, float]:
    """Requests a second of the floor and of the service, in turns, so that both see the same noise."""
    ports = free_port(), free_port()
    rates: dict[str, list[float]] = {"noop": [], "classify": []}
    costs: dict[str, list[float]] = {"noop": [], "classify": []}
    with (
        running(noop(ports[0]), ports[0], "/", WORK / "noop.log") as floor,
        running(bitedge(small / "model.gguf", ports[1]), ports[1], "/v1/classify", WORK / "bitedge.log") as service,
    ):
        for program in (floor, service):
            wrk(program.url, picture, "image/png", connections=16, seconds=2)
        for _ in range(rounds):
            for name, program in (("noop", floor), ("classify", service)):
                before = program.cpu()
                seen = wrk(program.url, picture, "image/png", connections=16, seconds=seconds)
                if seen.statuses:
                    raise SystemExit(f"{name}: unexpected answers {seen.statuses}")
                rates[name].append(seen.per_second)
                costs[name].append((program.cpu() - before) / (seen.per_second * seconds) * 1e6)
    return {
        "noop": statistics.median(rates["noop"]),
        "classify": statistics.median(rates["classify"]),
        "ratio": statistics.median(c / n for c, n in zip(rates["classify"], rates["noop"], strict=True)),
        "noop_cpu": statistics.median(costs["noop"]),
        "classify_cpu": statistics.median(costs["classify"]),
    }


def litserve(small: Path, picture: Path, seconds: int, rounds: int = 3) -> dict[str, float]:
    """Requests a second of LitServe with ONNX Runtime, in an environment of its own, in turns with the service."""
    environment = WORK / "litserve"
    if not (environment / "done").exists():
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        pip = [str(environment / "bin" / "pip"), "install", "-q", LITSERVE, "onnxruntime", "pillow", "numpy"]
        subprocess.run(pip, check=True)
        (environment / "done").touch()
    body = WORK / "picture.json"
    body.write_text(json.dumps({"image": base64.b64encode(picture.read_bytes()).decode()}))
    ports = free_port(), free_port()
    app = Path(__file__).parent / "litserve_app.py"
    command = [str(environment / "bin" / "python"), str(app), str(small / "model.onnx"), str(ports[0])]
    rates: dict[str, list[float]] = {"litserve": [], "classify": []}
    with (
        running(command, ports[0], "/predict", WORK / "litserve.log") as other,
        running(bitedge(small / "model.gguf", ports[1]), ports[1], "/v1/classify", WORK / "bitedge.log") as service,
    ):
        turns = (("litserve", other, body, "application/json"), ("classify", service, picture, "image/png"))
        for number in range(rounds + 1):  # the first one warms up
            for name, program, file, kind in turns:
                seen = wrk(program.url, file, kind, connections=16, seconds=seconds)
                if seen.statuses:
                    raise SystemExit(f"{name}: unexpected answers {seen.statuses}; see {WORK / name}.log")
                rates[name] += [seen.per_second] if number else []
        kill_children(other)
    return {name: statistics.median(values) for name, values in rates.items()}


def kill_children(program: Program) -> None:
    """LitServe leaves its workers behind when it ends; they are in its session."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            session = int((folder / "stat").read_text().rpartition(")")[2].split()[3])
        except OSError:
            continue
        if session == program.process.pid and int(folder.name) != program.process.pid:
            os.kill(int(folder.name), 9)


def table(quick: dict[str, float], lit: dict[str, float], heavy: Overload) -> str:
    """The results, in Markdown."""
    noop, classify = (f"{quick[k]:.0f} requests/s, {quick[f'{k}_cpu']:.0f} µs CPU each" for k in ("noop", "classify"))

    def rate(name: str) -> str:
        return f"{lit[name]:.0f} requests/s" if lit else "not measured"

    rows = {
        "no-op FastAPI route that reads the body": noop,
        "`POST /v1/classify`, same body": classify,
        "share of the no-op route": f"{100 * quick['ratio']:.0f} %",
        f"LitServe {LITSERVE.split('=')[-1]}, ONNX Runtime, same network": rate("litserve"),
        "`POST /v1/classify` in turns with it": rate("classify"),
        **heavy.rows(),
    }
    return "\n".join(["| what | result |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())])


def machine() -> str:
    """Where the table was made."""
    cores, load = os.cpu_count(), os.getloadavg()[0]
    return (
        f"Made on {platform.machine()} with {cores} cores, load {load:.1f} before, Python {platform.python_version()}."
    )


def write_docs(text: str) -> None:
    """Put the table between its marks in docs/serving.md."""
    page = DOCS.read_text(encoding="utf-8")
    begin, end = page.index(MARKS[0]) + len(MARKS[0]), page.index(MARKS[1])
    temporary = DOCS.with_name(f".{DOCS.name}.new")
    temporary.write_text(f"{page[:begin]}\n{text}\n{page[end:]}", encoding="utf-8")
    temporary.replace(DOCS)


def main() -> int:
    """Measure, print the table, and fail when a promise is not kept."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--seconds", type=int, default=30, help="length of the overload (default: 30)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of the comparison (default: 5)")
    parser.add_argument("--without-litserve", action="store_true", help="do not install and measure LitServe")
    parser.add_argument("--docs", action="store_true", help="write the table into docs/serving.md, too")
    args = parser.parse_args()
    for tool, package in (("wrk", "wrk"), ("h2load", "nghttp2-client")):
        if shutil.which(tool) is None:
            raise SystemExit(f"{tool} is not installed; run: apt-get install {package}")
    WORK.mkdir(parents=True, exist_ok=True)
    made_on = machine()
    small, wide, picture = prepare()
    quick = throughput(small, picture, 4, args.rounds)
    lit = {} if args.without_litserve else litserve(small, picture, 3)
    heavy = overload(wide / "model.gguf", picture, args.seconds, WORK)
    promises = {"`/v1/classify` reaches 60 % of the no-op route": quick["ratio"] >= 0.6, **heavy.promises()}
    kept = "\n".join(f"- {'kept' if kept else 'BROKEN'}: {promise}" for promise, kept in promises.items())
    text = f"{made_on}\n\n{table(quick, lit, heavy)}\n\n{kept}"
    (WORK / "table.md").write_text(text + "\n", encoding="utf-8")
    if args.docs:
        write_docs(text)
    print(text)
    return 0 if all(promises.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
