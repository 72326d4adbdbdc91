"""The tool that compares two builds of the core, run as its documentation says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bitedge.runtime import Model
from bitedge.runtime.box import boxed_models
from bitedge.runtime.library import find_library

TOOL = Path(__file__).parents[2] / "runtime/tools/compare_libraries.py"
DIGITS = boxed_models()["digits"]


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, TOOL, *map(str, words)], capture_output=True, text=True, check=False)


def test_every_layer_has_a_time_by_each_library_and_their_ratio() -> None:
    library = find_library()
    found = run(DIGITS, library, library, "--rounds", 1)
    assert found.returncode == 0, found.stderr
    heads, rows = found.stdout.splitlines()[:2], found.stdout.splitlines()[2:]
    assert heads == [f"1: {library}", f"2: {library}"]
    times = {row[:24].strip(): [float(word) for word in row[24:].split()] for row in rows}
    assert all(len(values) == 3 for values in times.values())
    assert all(min(times[name]) > 0 for name in ("norm2.sign.unpooled", "call, least", "call, median"))
    run_by = {node.name for node in Model(DIGITS).nodes if not node.kernel.startswith("fused")}
    assert set(times) == run_by | {"call, least", "call, median"}
    least, median = times["call, least"][:2], times["call, median"][:2]
    assert all(a <= b for a, b in zip(least, median, strict=True))


def test_what_is_no_library_is_refused_in_one_line(tmp_path: Path) -> None:
    absent = run(DIGITS, tmp_path / "none.so")
    assert (absent.returncode, "not a file" in absent.stderr) == (2, True)
    (text := tmp_path / "text.so").write_text("no library")
    refused = run(DIGITS, text)
    assert refused.returncode == 2
    assert str(text) in refused.stderr
    assert "Traceback" not in refused.stderr
