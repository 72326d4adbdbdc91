"""Show what this machine and this installation can do: CPU features, kernels, extras, and what is missing."""

from __future__ import annotations

import argparse
import os
import platform
from importlib import metadata
from typing import Any

from bitedge.cli.main import version
from bitedge.cli.output import emit, table

# What each extra brings, by distribution name: enough to tell whether it is there.
EXTRAS = {
    "image": ("pillow",),
    "serve": ("fastapi", "granian", "orjson", "pydantic-settings", "python-multipart", "prometheus-client"),
    "grpc": ("grpcio", "protobuf"),
    "otel": ("opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http"),
    "client": ("httpx2",),
    "train": ("torch", "safetensors", "scikit-learn", "matplotlib", "optuna", "tqdm", "gguf"),
    "onnx": ("onnx", "onnxruntime"),
    "tflite": ("larq-compute-engine", "tensorflow"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The doctor takes no arguments of its own."""


def installed(distribution: str) -> str | None:
    """The installed version of a distribution, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def diagnose() -> dict[str, Any]:
    """Gather the facts."""
    from bitedge import runtime

    return {
        "bitedge": version(),
        "core": runtime.version(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "cpu_features": list(runtime.cpu_features()),
        "kernels": [
            {"name": k.name, "built": k.built, "supported": k.supported, "chosen": k.chosen}
            for k in runtime.available_kernels()
        ],
        "extras": {extra: {name: installed(name) for name in names} for extra, names in EXTRAS.items()},
    }


def run(args: argparse.Namespace) -> int:
    """Print the diagnosis; missing extras are not a failure."""
    facts = diagnose()
    kernels = [
        (k["name"], "yes" if k["built"] else "no", "yes" if k["supported"] else "no", "<-" if k["chosen"] else "")
        for k in facts["kernels"]
    ]
    extras, advice = [], []
    for extra, packages in facts["extras"].items():
        missing = [name for name, found in packages.items() if found is None]
        extras.append((extra, "missing " + ", ".join(missing) if missing else "installed"))
        if missing:
            advice.append(f"pip install 'bitedge[{extra}]'")
    lines = [
        f"bitedge {facts['bitedge']}, core {facts['core']}, Python {facts['python']}, {facts['system']}",
        f"CPU: {facts['machine']}, {facts['cores']} cores; {' '.join(facts['cpu_features']) or 'no known features'}",
        "",
        table(("kernels", "built", "supported", "chosen"), kernels),
        "",
        table(("extra", "state"), extras),
    ]
    if advice:
        lines += ["", "To add what is missing:", *(f"  {line}" for line in advice)]
    emit(args, facts, "\n".join(lines))
    return 0
