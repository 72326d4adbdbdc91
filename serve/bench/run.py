"""`make bench-serve`: how much the service costs, and what it does when there is too much to do.

Run as `python -m bench.run` in this folder's parent. Needs Debian's wrk and nghttp2-client (h2load). Everything runs on
this machine, over loopback, for a few minutes. The table goes to build/bench-serve/table.md; docs/serving.md has one,
with the machine it was made on.
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
import threading
import time
from pathlib import Path
from typing import Any

from bench.programs import Program, bitedge, free_port, h2load, noop, running, wrk

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "bench-serve"
DEADLINE_MS = 1000
LITSERVE = "litserve==0.2.19"


def prepare() -> tuple[Path, Path, Path]:
    """A small and a large network (the speed does not depend on the weights), and a picture."""
    import numpy as np
    import torch
    from PIL import Image

    from bitedge.export import export
    from bitedge.train.networks import BinaryNet

    geometry: dict[str, Any] = {"size": [32, 32], "resize": None, "interpolation": "bilinear"}
    geometry |= {"scale": [2 / 256] * 3, "offset": [-255 / 256] * 3}
    for name, width, dense in (("small", 32, 128), ("large", 128, 1024)):
        if not (WORK / name / "model.onnx").exists():
            torch.manual_seed(0)
            network, formats = BinaryNet(width=width, dense=dense).eval(), ("gguf", "onnx")
            export(network, (1, 3, 32, 32), WORK / name, formats=formats, preprocessing=geometry)
    rng = np.random.default_rng(0)
    smooth = Image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8)).resize((32, 32), Image.Resampling.BICUBIC)
    smooth.save(WORK / "picture.png")
    return WORK / "small", WORK / "large", WORK / "picture.png"


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


def litserve(small: Path, picture: Path, seconds: int) -> float:
    """Requests a second of LitServe with ONNX Runtime, in an environment of its own."""
    environment = WORK / "litserve"
    if not (environment / "done").exists():
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        pip = [str(environment / "bin" / "pip"), "install", "-q", LITSERVE, "onnxruntime", "pillow", "numpy"]
        subprocess.run(pip, check=True)
        (environment / "done").touch()
    body = WORK / "picture.json"
    body.write_text(json.dumps({"image": base64.b64encode(picture.read_bytes()).decode()}))
    port = free_port()
    app = Path(__file__).parent / "litserve_app.py"
    command = [str(environment / "bin" / "python"), str(app), str(small / "model.onnx"), str(port)]
    with running(command, port, "/predict", WORK / "litserve.log") as program:
        wrk(program.url, body, "application/json", connections=16, seconds=2)
        seen = wrk(program.url, body, "application/json", connections=16, seconds=seconds)
        kill_children(program)
    if seen.statuses:
        raise SystemExit(f"litserve: unexpected answers {seen.statuses}; see {WORK / 'litserve.log'}")
    return seen.per_second


def kill_children(program: Program) -> None:
    """LitServe leaves its workers behind when it ends; they are in its session."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            session = int((folder / "stat").read_text().rpartition(")")[2].split()[3])
        except OSError:
            continue
        if session == program.process.pid and int(folder.name) != program.process.pid:
            os.kill(int(folder.name), 9)


def overload(large: Path, picture: Path, seconds: int) -> dict[str, float]:
    """Four times what the large network can do, for a while: what is accepted, what is shed, and what it costs."""
    port = free_port()
    command = bitedge(large / "model.gguf", port, "--deadline-ms", str(DEADLINE_MS))
    with running(command, port, "/v1/classify", WORK / "overload.log") as service:
        wrk(service.url, picture, "image/png", connections=16, seconds=2)
        capacity = wrk(service.url, picture, "image/png", connections=64, seconds=5).per_second
        memory: list[int] = []
        stop = threading.Event()

        def watch() -> None:
            while not stop.wait(0.5):
                memory.append(service.memory())

        watcher = threading.Thread(target=watch)
        watcher.start()
        seen = h2load(
            service.url, picture, rate=4 * capacity, clients=400, seconds=seconds, log=WORK / "overload.requests"
        )
        stop.set()
        watcher.join()
        checked = wrk(service.url, picture, "image/png", connections=512, seconds=5)
        time.sleep(1)
        after = wrk(service.url, picture, "image/png", connections=16, seconds=3).per_second
    answered = {status: len(values) for status, values in seen.latencies.items()}
    others = sum(count for status, count in answered.items() if status not in (200, 503))
    third = max(1, len(memory) // 3)
    return {
        "capacity": capacity,
        "offered": sum(answered.values()) / seconds,
        "accepted": answered.get(200, 0) / seconds,
        "shed": answered.get(503, 0) / seconds,
        "others": others + seen.lost,
        "p50": seen.quantile(200, 0.50),
        "p99": seen.quantile(200, 0.99),
        "shed_p99": seen.quantile(503, 0.99),
        "memory_start": statistics.median(memory[:third]) / 2**20,
        "memory_end": statistics.median(memory[-third:]) / 2**20,
        "checked": sum(checked.statuses.values()),
        "without_retry_after": max(0, checked.without_retry_after),
        "after": after,
    }


def table(quick: dict[str, float], lit: float | None, heavy: dict[str, float]) -> str:
    """The results, in Markdown."""
    q, h = quick, heavy
    beyond = h["offered"] / h["capacity"]
    rows = {
        "no-op FastAPI route that reads the body": f"{q['noop']:.0f} requests/s, {q['noop_cpu']:.0f} µs CPU each",
        "`POST /v1/classify`, same body": f"{q['classify']:.0f} requests/s, {q['classify_cpu']:.0f} µs CPU each",
        "share of the no-op route": f"{100 * q['ratio']:.0f} %",
        "LitServe 0.2.19, ONNX Runtime, same network": "not measured" if lit is None else f"{lit:.0f} requests/s",
        "large network: capacity": f"{h['capacity']:.0f} requests/s",
        "overload: answered": f"{h['offered']:.0f} requests/s ({beyond:.1f} x capacity)",
        "overload: 200": f"{h['accepted']:.0f} requests/s, p50 {h['p50']:.0f} ms, p99 {h['p99']:.0f} ms",
        "overload: 503": f"{h['shed']:.0f} requests/s, p99 {h['shed_p99']:.0f} ms",
        "overload: anything else, or lost": f"{h['others']:.0f}",
        "refusals looked at, without Retry-After": f"{h['checked']:.0f}, {h['without_retry_after']:.0f}",
        "overload: memory, first and last third": f"{h['memory_start']:.0f} MiB, {h['memory_end']:.0f} MiB",
        "after the overload": f"{h['after']:.0f} requests/s",
    }
    return "\n".join(["| what | result |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())])


def main() -> int:
    """Measure, print the table, and fail when a promise is not kept."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--seconds", type=int, default=30, help="length of the overload (default: 30)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of the comparison (default: 5)")
    parser.add_argument("--without-litserve", action="store_true", help="do not install and measure LitServe")
    args = parser.parse_args()
    for tool, package in (("wrk", "wrk"), ("h2load", "nghttp2-client")):
        if shutil.which(tool) is None:
            raise SystemExit(f"{tool} is not installed; run: apt-get install {package}")
    WORK.mkdir(parents=True, exist_ok=True)
    small, large, picture = prepare()
    quick = throughput(small, picture, 4, args.rounds)
    lit = None if args.without_litserve else litserve(small, picture, 8)
    heavy = overload(large, picture, args.seconds)
    text = table(quick, lit, heavy)
    (WORK / "table.md").write_text(text + "\n")
    machine = f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    print(f"{machine}, Python {platform.python_version()}\n")
    print(text)
    promises = {
        "classify reaches 60 % of the no-op route": quick["ratio"] >= 0.6,
        "nothing is lost": heavy["others"] == 0 and heavy["without_retry_after"] == 0,
        f"p99 of accepted requests is below {DEADLINE_MS} ms": heavy["p99"] < DEADLINE_MS,
        "memory is flat": heavy["memory_end"] < 1.1 * heavy["memory_start"] + 8,
    }
    for promise, kept in promises.items():
        print(f"{'kept' if kept else 'BROKEN'}: {promise}")
    return 0 if all(promises.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
