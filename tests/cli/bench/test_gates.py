"""The gates of `bitedge bench`, on rows as the runner makes them."""

from __future__ import annotations

from typing import Any

import pytest

from bitedge.cli.bench.gates import Gates, parse_speedup
from bitedge.cli.errors import CommandError


def row(engine: str, p50: float, *, status: str = "ok", threads: int = 1, **more: Any) -> dict[str, Any]:
    ms = None if status in ("missing", "failed") else {"min": p50 / 2, "p50": p50, "p90": 2 * p50, "p99": 3 * p50}
    return {"engine": engine, "threads": threads, "batch": 1, "status": status, "ms": ms, **more}


ROWS = [
    row("bitedge", 1.0, top1=0.9),
    row("bitedge", 0.5, threads=2, top1=0.9),
    row("torch", 10.0),
    row("torch", 4.0, threads=2),
]


@pytest.mark.parametrize(
    ("gates", "breaches"),
    [
        (Gates(), 0),
        (Gates(max_p99_ms=3.0), 0),
        (Gates(max_p99_ms=2.0), 1),
        (Gates(max_p99_ms=1.0), 2),
        (Gates(min_speedup={"torch": 8.0}), 0),
        (Gates(min_speedup={"torch": 9.0}), 1),
        (Gates(min_speedup={"torch": 11.0}), 2),
        (Gates(min_speedup={"larq": 1.0}), 1),
        (Gates(min_top1=0.9), 0),
        (Gates(min_top1=0.91), 2),
    ],
)
def test_each_limit_counts_its_breaches(gates: Gates, breaches: int) -> None:
    assert len(gates.breaches(ROWS)) == breaches


def test_a_wrong_answer_and_a_failure_always_count() -> None:
    rows = [row("bitedge", 1.0), row("larq", 1.0, status="differs"), row("torch", 1.0, status="failed", reason="broke")]
    assert Gates().breaches(rows) == ["larq: the answer differs from the reference", "torch: broke"]


def test_top1_is_not_taken_for_granted() -> None:
    assert Gates(min_top1=0.1).breaches([row("bitedge", 1.0)])


def test_a_missing_peer_is_no_breach() -> None:
    assert Gates().breaches([row("bitedge", 1.0), row("larq", 0.0, status="missing", reason="pip install x")]) == []


def test_speedups_are_read_per_engine() -> None:
    assert parse_speedup(["torch=2", "onnxruntime int8=2.5"], ["torch", "onnxruntime int8"]) == {
        "torch": 2.0,
        "onnxruntime int8": 2.5,
    }


@pytest.mark.parametrize("word", ["torch", "torch=fast", "tensorrt=2"])
def test_a_bad_speedup_is_refused(word: str) -> None:
    with pytest.raises(CommandError, match="--min-speedup"):
        parse_speedup([word], ["torch"])
