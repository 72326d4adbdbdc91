"""The mobile networks that binary ones are compared with, and the chart of accuracy against time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from bitedge.cli.bench import mobile
from bitedge.cli.bench.pareto import FILES, PEERS, chart
from bitedge.cli.main import main

PARAMETERS = {  # as torchvision and timm count them
    "mobilenet_v1": 4_231_976,
    "mobilenet_v2": 3_504_872,
    "mobilenet_v3_large": 5_483_032,
    "efficientnet_lite0": 4_652_008,
}


@pytest.mark.parametrize("name", PEERS)
def test_mobile_networks_have_the_published_number_of_parameters(name: str) -> None:
    with torch.device("meta"):
        module = getattr(mobile, name)()
    assert sum(parameter.numel() for parameter in module.parameters()) == PARAMETERS[name]


@pytest.mark.slow
@pytest.mark.xdist_group("tensorflow")
def test_binary_and_mobile_networks_are_measured_in_one_run(tmp_path: Path) -> None:
    report, page, picture = tmp_path / "r.json", tmp_path / "t.md", tmp_path / "c.png"
    words = ["bench", "pareto", "binarydensenet28", "mobilenet_v1", "--image-size", "32", "--rounds", "1"]
    assert main([*words, "--json", str(report), "--markdown", str(page)]) == 0
    rows = json.loads(report.read_text())["rows"]
    assert [row["reason"] for row in rows] == [None] * len(rows)
    assert {row["engine"] for row in rows if row["network"] == "mobilenet_v1"} == set(FILES)
    assert {row["kind"] for row in rows if row["network"] == "binarydensenet28"} == {"binary"}
    assert [row["ms"] for row in rows] == sorted(row["ms"] for row in rows)
    assert {row["top1"] for row in rows} == {None}, "nothing is published for images of 32 pixels"
    assert page.read_text().count("| mobilenet_v1 |") == len(FILES)
    chart("title", [row | {"top1": 60.0} for row in rows], picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_an_unknown_network_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "pareto", "mobilenet_v9"]) == 2
    assert "there is no network 'mobilenet_v9' (did you mean mobilenet_v" in capsys.readouterr().err
