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
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.overload import overload
from bench.programs import bitedge, free_port, noop, running, wrk

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "bench-serve"
DOCS = ROOT / "docs" / "serving.md"
MARKS = ("<!-- bench-serve: begin -->", "<!-- bench-serve: end -->")
PHOTO = ROOT / "tests" / "serve" / "data" / "cat.jpg"
PATIENT = ("--deadline-ms", "30000")  # LitServe has 30 s, MLServer no deadline at all
PAIR = (*PATIENT, "--workers", "2")  # LitServe has a process for HTTP and one for the model
LITSERVE, MLSERVER = "litserve==0.2.19", "mlserver==1.7.1"


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


@dataclass(frozen=True)
class Contender:
    """A server under test, and what is sent to it."""

    name: str
    command: Callable[[int], list[str]]
    path: str
    body: Callable[[Path], tuple[Path, str]]  # the file and its content type, for a picture


@dataclass
class Rounds:
    """What was measured of one server, round by round."""

    per_second: list[float] = field(default_factory=list)
    p50: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)  # microseconds a request
    memory: list[float] = field(default_factory=list)  # MiB

    def median(self, name: str) -> float:
        """The median of one measure."""
        return float(statistics.median(getattr(self, name)))


def environment(name: str, *packages: str) -> Path:
    """Make an environment of its own, because the pins of other servers conflict with ours."""
    folder = WORK / name
    if not (folder / "done").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(folder / "bin" / "pip"), "install", "-q", *packages], check=True)
        (folder / "done").touch()
    return folder / "bin"


def base64_body(picture: Path, kind: str) -> tuple[Path, str]:
    """The picture as LitServe and MLServer take it: base64 in JSON."""
    text = base64.b64encode(picture.read_bytes()).decode()
    value: dict[str, Any] = {"image": text}
    if kind == "mlserver":
        value = {"inputs": [{"name": "image", "shape": [1], "datatype": "BYTES", "data": [text]}]}
    body = WORK / f"{picture.name}.{kind}.json"
    body.write_text(json.dumps(value))
    return body, "application/json"


def raw_body(picture: Path) -> tuple[Path, str]:
    """The picture as it is."""
    return picture, "image/png" if picture.suffix == ".png" else "image/jpeg"


def contenders(small: Path, others: bool) -> list[Contender]:
    """The reference, the service, and the others, with the same network."""
    packed, onnx = small / "model.gguf", small / "model.onnx"
    found = [
        Contender("no-op FastAPI route", noop, "/", raw_body),
        Contender("bitedge", lambda port: bitedge(packed, port, *PATIENT), "/v1/classify", raw_body),
        Contender("bitedge, 2 workers", lambda port: bitedge(packed, port, *PAIR), "/v1/classify", raw_body),
        Contender("bitedge, ONNX Runtime", lambda port: bitedge(onnx, port, *PATIENT), "/v1/classify", raw_body),
        Contender("the same, 2 workers", lambda port: bitedge(onnx, port, *PAIR), "/v1/classify", raw_body),
    ]
    if not others:
        return found
    lit = environment("litserve", LITSERVE, "onnxruntime", "pillow", "numpy") / "python"
    app = Path(__file__).parent / "litserve_app.py"
    ml = environment("mlserver", MLSERVER, "onnxruntime", "pillow") / "mlserver"
    return [
        *found,
        Contender(
            "LitServe, ONNX Runtime",
            lambda port: [str(lit), str(app), str(onnx), str(port)],
            "/predict",
            lambda picture: base64_body(picture, "litserve"),
        ),
        Contender(
            "MLServer, ONNX Runtime",
            lambda port: [str(ml), "start", str(mlserver_folder(onnx, port))],
            "/v2/models/small/infer",
            lambda picture: base64_body(picture, "mlserver"),
        ),
    ]


def mlserver_folder(onnx: Path, port: int) -> Path:
    """Write the settings of MLServer, without its worker processes."""
    folder = WORK / "mlserver-models"
    folder.mkdir(exist_ok=True)
    shutil.copy(Path(__file__).parent / "mlserver_app.py", folder / "mlserver_app.py")
    server = {"http_port": port, "grpc_port": free_port(), "metrics_port": free_port(), "parallel_workers": 0}
    (folder / "settings.json").write_text(json.dumps({**server, "debug": False}))
    model = {"name": "small", "implementation": "mlserver_app.Classifier", "parameters": {"uri": str(onnx)}}
    (folder / "model-settings.json").write_text(json.dumps(model))
    return folder


def throughput(servers: list[Contender], picture: Path, seconds: int, rounds: int) -> dict[str, Rounds]:
    """Measure all servers in turns, so that they see the same machine; the first round warms up."""
    results = {server.name: Rounds() for server in servers}
    with ExitStack() as stack:
        programs = []
        for server in servers:
            port = free_port()
            log = WORK / f"{server.name.replace(',', '').replace(' ', '-')}.log"
            programs.append(stack.enter_context(running(server.command(port), port, server.path, log)))
            programs[-1].signal(signal.SIGSTOP)
        for number in range(rounds + 1):
            for server, program in zip(servers, programs, strict=True):
                program.signal(signal.SIGCONT)
                time.sleep(1)  # until its heartbeat is on time again
                before = program.cpu()
                body, kind = server.body(picture)
                seen = wrk(program.url, body, kind, connections=16, seconds=seconds)
                if seen.statuses:
                    raise SystemExit(f"{server.name}: unexpected answers {seen.statuses}")
                if number:
                    rows = results[server.name]
                    rows.per_second.append(seen.accepted)
                    rows.p50.append(seen.p50)
                    rows.p99.append(seen.p99)
                    rows.cpu.append((program.cpu() - before) / (seen.per_second * seconds) * 1e6)
                    rows.memory.append(program.memory() / 2**20)
                time.sleep(1)  # nothing is under way when it stops
                program.signal(signal.SIGSTOP)
    return results


def share(results: dict[str, Rounds], name: str, of: str) -> float:
    """The median over the rounds of one server's rate as a share of another's."""
    pairs = zip(results[name].per_second, results[of].per_second, strict=True)
    return statistics.median(one / other for one, other in pairs)


def table(title: str, results: dict[str, Rounds]) -> str:
    """The results, in Markdown."""
    lines = [f"| {title} | requests/s | p50 ms | p99 ms | CPU µs each | memory MiB |", "|---|---:|---:|---:|---:|---:|"]
    for name, rows in results.items():
        values = [rows.median(measure) for measure in ("per_second", "p50", "p99", "cpu", "memory")]
        lines.append(
            f"| {name} | {values[0]:.0f} | {values[1]:.1f} | {values[2]:.1f} | {values[3]:.0f} | {values[4]:.0f} |"
        )
    return "\n".join(lines)


def machine() -> str:
    """Where the table was made."""
    cores, load = os.cpu_count(), os.getloadavg()[0]
    where = f"{platform.machine()} with {cores} cores, load {load:.1f} before, Python {platform.python_version()}"
    return f"Made by `make bench-serve` on {datetime.now(UTC):%Y-%m-%d}, {where}."


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
    parser.add_argument("--round-seconds", type=int, default=4, help="length of one round (default: 4)")
    parser.add_argument("--without-others", action="store_true", help="without LitServe and MLServer")
    parser.add_argument("--docs", action="store_true", help="write the table into docs/serving.md, too")
    args = parser.parse_args()
    for tool, package in (("wrk", "wrk"), ("h2load", "nghttp2-client")):
        if shutil.which(tool) is None:
            raise SystemExit(f"{tool} is not installed; run: apt-get install {package}")
    WORK.mkdir(parents=True, exist_ok=True)
    made_on = machine()
    small, wide, picture = prepare()
    servers = contenders(small, not args.without_others)
    quick = throughput(servers, picture, args.round_seconds, args.rounds)
    photo = throughput(servers, PHOTO, args.round_seconds, args.rounds)
    heavy = overload(wide / "model.gguf", picture, args.seconds, WORK)
    reference = share(quick, "bitedge", "no-op FastAPI route")
    promises = {f"small PNGs: {100 * reference:.0f} % of the no-op route, at least 25 %": reference >= 0.25}
    if not args.without_others:
        for name in ("bitedge", "bitedge, 2 workers"):
            times = share(quick, name, "LitServe, ONNX Runtime")
            promises[f"small PNGs: {name}: {times:.1f} times LitServe, at least 3"] = times >= 3
    promises |= heavy.promises()
    kept = "\n".join(f"- {'kept' if kept else 'BROKEN'}: {promise}" for promise, kept in promises.items())
    rows = "\n".join(["| overload | result |", "|---|---|", *(f"| {n} | {v} |" for n, v in heavy.rows().items())])
    tables = [table("PNG of 32x32, 2 kB", quick), table("JPEG photo, 28 kB", photo), rows]
    text = "\n\n".join([made_on, *tables, kept])
    (WORK / "table.md").write_text(text + "\n", encoding="utf-8")
    if args.docs:
        write_docs(text)
    print(text)
    return 0 if all(promises.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
