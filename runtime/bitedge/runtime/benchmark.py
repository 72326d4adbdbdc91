"""Timing that survives a noisy machine: warm-up, interleaved rounds, percentiles; and a description of the host."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Latency:
    """Percentiles of one measurement, in milliseconds per call."""

    min: float
    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, seconds: np.ndarray[Any, Any]) -> Latency:
        """Summarize the durations of single calls."""
        p50, p90, p99 = np.percentile(seconds, (50, 90, 99))
        return cls(*(float(1e3 * value) for value in (seconds.min(), p50, p90, p99)))

    def as_dict(self) -> dict[str, float]:
        """The four numbers by name."""
        return asdict(self)


def measure(
    calls: Mapping[str, Callable[[], object]], *, rounds: int = 20, warmup: int = 3, round_seconds: float = 0.02
) -> dict[str, np.ndarray[Any, Any]]:
    """Time several calls side by side and return the durations of every single call, in seconds.

    The calls take turns in rounds, so that a slow moment of the machine falls on all of them alike; each turn lasts
    about `round_seconds`, so that quick calls are timed often enough for their percentiles to mean something.
    """
    repeats: dict[str, int] = {}
    for name, call in calls.items():
        durations = [_time(call) for _ in range(max(1, warmup))]
        repeats[name] = max(1, int(round_seconds / max(min(durations), 1e-7)))
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            samples[name].extend(_time(call) for _ in range(repeats[name]))
    return {name: np.asarray(values) for name, values in samples.items()}


def _time(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def host() -> dict[str, Any]:
    """Describe the machine: what it is, and what may disturb a measurement where the system tells."""
    return {
        "cpu": _cpu_name(),
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "temperature_c": _temperature(),
        "load": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
    }


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return None


def _temperature() -> float | None:
    text = _read("/sys/class/thermal/thermal_zone0/temp")
    return int(text) / 1000 if text and text.lstrip("-").isdigit() else None


def _cpu_name() -> str:
    """The processor's name: from x86's and most ARM kernels' cpuinfo, or from a board's device tree."""
    for line in (_read("/proc/cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model"):
            return value.strip()
    return (_read("/proc/device-tree/model") or platform.processor() or "unknown").strip("\0")
