"""The profile of the core's layers adds up to the time of a call."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bitedge.cli.bench import report
from bitedge.cli.bench.profile import typical, with_times
from bitedge.cli.main import main

LAYER = {"name": "a", "op": "conv2d", "kernel": "k", "ms": 9.0, "macs": 4_000_000, "gmacs_per_s": 9.0}
LAYER |= {"limit_gmacs_per_s": 8.0, "share": 9.0}
POOL = {**LAYER, "name": "b", "op": "max_pool2d", "macs": 0, "limit_gmacs_per_s": None}


def test_slow_and_quick_calls_stay_out() -> None:
    calls = [[3.0, 1.0], [90.0, 1.0], [1.0, 3.0], [0.1, 0.1]]
    assert typical(calls) == [2.0, 2.0]
    assert typical([[5.0, 7.0]]) == [5.0, 7.0]


def test_the_times_of_the_kept_calls_add_up() -> None:
    calls = [[float(i * j % 7), float(i), float(j)] for i in range(5) for j in range(5)]
    middle = sorted(sum(call) for call in calls)[6:-6]
    assert sum(typical(calls)) == pytest.approx(sum(middle) / len(middle))


def test_the_rest_completes_the_total() -> None:
    first, second, rest = with_times([LAYER, POOL], [1.0, 0.25], 1.5)
    assert (first["ms"], first["gmacs_per_s"], first["share"]) == (1.0, 4.0, 0.5)
    assert (second["ms"], second["gmacs_per_s"], second["share"]) == (0.25, None, None)
    assert (rest["name"], rest["ms"], rest["macs"], rest["gmacs_per_s"]) == ("rest", 0.25, 0, None)
    assert list(rest) == list(LAYER)
    lines = report.layers([first, second, rest]).splitlines()
    assert lines[-1].split()[:3] == ["total", "1.5000", "100.0"]
    assert lines[-2].startswith("rest")


def test_a_real_profile_is_that_of_its_row(digits_model: Path, tmp_path: Path) -> None:
    words = ["bench", str(digits_model), "--rounds", "2", "--batch", "2,1", "--profile"]
    assert main([*words, "--json", str(tmp_path / "r.json")]) == 0
    first, second = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert sum(layer["ms"] for layer in first["layers"]) == pytest.approx(first["ms"]["p50"] / 2)
    assert first["layers"][-1]["name"] == "rest"
    assert all(layer["ms"] > 0 for layer in first["layers"] if layer["macs"])
    assert second["layers"] == []
