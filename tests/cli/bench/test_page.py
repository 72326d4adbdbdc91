"""`bitedge bench page`, and the description of the reports that it is made of."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bitedge.cli.bench import host, native, runner
from bitedge.cli.main import main

ROOT = Path(__file__).resolve().parents[3]
HOST = {"cpu": "a processor", "cores": 2, "system": "Linux 6", "versions": {"bitedge": "0.1.0", "torch": "2.13"}}


def described(kind: str) -> list[str]:
    """The fields that docs/on-device.md lists in the table of `kind`, in order."""
    text = (ROOT / "docs/on-device.md").read_text(encoding="utf-8")
    table = text[text.index(f"| {kind} field | type | meaning |") :].split("\n\n")[0]
    return re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)


def row(engine: str, threads: int, p50: float) -> dict[str, Any]:
    ms = {"min": p50, "p50": p50, "p90": p50, "p99": p50}
    return {"engine": engine, "threads": threads, "batch": 1, "status": "ok", "ms": ms, "images_per_s": 1, "bytes": 1}


def write(path: Path, net: str) -> str:
    rows = [row(engine, threads, 1.0 + threads) for threads in (1, 2) for engine in ("bitedge", "torch")]
    document = runner.as_json(HOST, net, rows) | {"command": f"bitedge bench --net {net.lower()}"}
    path.write_text(json.dumps(document))
    return str(path)


def test_a_page_has_every_report_with_command_machine_table_and_chart(tmp_path: Path) -> None:
    reports = [write(tmp_path / f"{net}.json", net) for net in ("BiRealNet18", "XnorNet", "BinaryNet")]
    page = tmp_path / "docs" / "benchmarks.md"
    page.parent.mkdir()
    assert main(["bench", "page", *reports, "--markdown", str(page)]) == 0
    text = page.read_text()
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["BiRealNet18", "XnorNet", "BinaryNet"]
    for net in ("birealnet18", "xnornet", "binarynet"):
        assert f"`bitedge bench --net {net}` on a processor, 2 cores, Linux 6; bitedge 0.1.0, torch 2.13" in text
        assert f"(images/bench-{net}.png)" in text
        assert (page.parent / f"images/bench-{net}.png").read_bytes().startswith(b"\x89PNG")
    assert text.count("\n| bitedge | ok |") == 6


def test_kernels_have_a_section_too(tmp_path: Path) -> None:
    cells = {"layer": "l", "engine": "bitedge avx2", "kernel": "k", "us": 1.0, "gmacs_per_s": 50.0}
    cells |= {"limit_gmacs_per_s": 100.0, "share": 0.5, "status": "ok", "agrees": None, "reason": None}
    (tmp_path / "k.json").write_text(json.dumps({"host": HOST, "command": "bitedge bench kernels", "rows": [cells]}))
    page = tmp_path / "page.md"
    assert main(["bench", "page", str(tmp_path / "k.json"), "--markdown", str(page)]) == 0
    assert "| l | bitedge avx2 | k | ok | 1.0 | 50 | 100 | 50 |" in page.read_text()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"host": {}, "rows": []}'])
def test_a_bad_report_is_one_line(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.json").write_text(content)
    assert main(["bench", "page", str(tmp_path / "r.json"), "--markdown", str(tmp_path / "page.md")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "page.md").exists()


def test_a_page_needs_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "page", "r.json"]) == 2
    assert "--markdown PAGE.md" in capsys.readouterr().err


def test_rows_are_as_described() -> None:
    (made,) = runner.as_json(HOST, "net", [row("bitedge", 1, 1.0)])["rows"]
    assert list(made) == described("row")


def test_native_rows_layers_and_host_are_as_described(digits_model: Path) -> None:
    document = native.ask(str(digits_model), "--runs", "1", "--profile", "--json")
    assert list(document["rows"][0]) == described("row")
    assert list(document["rows"][0]["layers"][0]) == described("layer")
    assert list(document["host"]) == [*described("host"), "version"]


def test_python_describes_the_same_host() -> None:
    assert {*described("host"), "python", "versions"} == set(host.describe())


def test_a_host_without_the_tool_is_described_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.VARIABLE, "/absent")
    about = host.describe()
    assert about["cpu"]
    assert about["compiler"] is None
