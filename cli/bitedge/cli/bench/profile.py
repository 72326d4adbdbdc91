"""Where the time of the core goes: what its layers take, and what is left of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

REST = {"name": "rest", "op": "-", "kernel": "calling, planning and answering", "macs": 0}


def typical(nodes: Sequence[Sequence[float]]) -> list[float]:
    """The mean time of each node over the half of the calls whose totals lie in the middle.

    Means add up where medians do not, and the slow calls of a busy machine stay out, as they do of a median.
    """
    calls = np.asarray(nodes)
    order = np.argsort(calls.sum(axis=1), kind="stable")
    quarter = len(order) // 4
    return [float(mean) for mean in calls[order[quarter : len(order) - quarter]].mean(axis=0)]


def with_times(layers: Sequence[Mapping[str, Any]], ms: Sequence[float], total: float) -> list[dict[str, Any]]:
    """The layers with these times and the rates that follow, and a row for the rest: together `total`."""
    timed = [_timed(layer, each) for layer, each in zip(layers, ms, strict=True)]
    return [*timed, _timed({**dict.fromkeys(layers[0]), **REST}, total - sum(ms))]


def _timed(layer: Mapping[str, Any], ms: float) -> dict[str, Any]:
    rate = layer["macs"] / ms / 1e6 if layer["macs"] and ms > 0 else None
    limit = layer["limit_gmacs_per_s"]
    return {**layer, "ms": ms, "gmacs_per_s": rate, "share": rate / limit if rate and limit else None}
