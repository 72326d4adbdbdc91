"""The machine that a report was measured on: what the runtime sees of it, and what this installation has."""

from __future__ import annotations

from importlib import metadata
from typing import Any

from bitedge.cli.bench import native
from bitedge.cli.errors import CommandError
from bitedge.runtime.benchmark import host

PEERS = ("onnxruntime", "larq-compute-engine", "tensorflow", "openvino", "torch", "numpy")


def describe() -> dict[str, Any]:
    """CPU, features, kernels, governor, temperature, throttling, compiler and versions, where they can be read."""
    about = {"throttled": None, "features": None, "kernels": None, "compiler": None}
    try:
        seen = native.ask("host")
        about = {key: seen[key] for key in about}
    except CommandError:
        pass  # an installation without the tool still measures; it just cannot say how the core was built
    return host() | about | {"versions": versions()}


def versions() -> dict[str, str]:
    """The version of bitedge and of every peer that is installed."""
    found = {}
    for name in ("bitedge", *PEERS):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
