"""`bitedge bench compare`: a change counts only beyond the noise of both runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bitedge.cli.bench.compare import judge
from bitedge.cli.main import main


def latency(minimum: float, median: float) -> dict[str, float]:
    return {"min": minimum, "p50": median, "p90": median, "p99": median}


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (latency(1.0, 1.02), latency(2.0, 2.04), "slower"),
        (latency(2.0, 2.04), latency(1.0, 1.02), "faster"),
        (latency(1.0, 1.02), latency(1.0, 1.03), "same within noise"),
        (latency(1.0, 1.5), latency(1.0, 1.9), "same within noise"),
        (latency(1.0, 1.02), latency(0.99, 1.5), "same within noise"),
    ],
)
def test_noise_decides(before: dict[str, float], after: dict[str, float], verdict: str) -> None:
    assert judge(before, after)[2] == verdict


def write(path: Path, p50: float, engine: str = "bitedge") -> str:
    row = {"net": "n", "engine": engine, "threads": 1, "batch": 1, "ms": latency(p50, p50)}
    path.write_text(json.dumps({"rows": [row]}))
    return str(path)


def test_the_command_prints_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = write(tmp_path / "a.json", 1.0), write(tmp_path / "b.json", 2.0)
    assert main(["bench", "compare", first, second]) == 0
    assert "slower" in capsys.readouterr().out


def test_bad_reports_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, other = write(tmp_path / "a.json", 1.0), write(tmp_path / "b.json", 1.0, "torch")
    (tmp_path / "c.json").write_text("[]")
    for words in ([good], [good, str(tmp_path / "c.json")], [good, other], [good, str(tmp_path / "absent.json")]):
        assert main(["bench", "compare", *words]) == 2
        assert capsys.readouterr().err.count("\n") == 1
