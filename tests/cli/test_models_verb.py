"""`bitedge models`: the table of networks."""

from __future__ import annotations

import json

import pytest

from bitedge.cli.main import main


def test_counts_and_published_figures_are_in_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "*net20"]) == 0
    header, _, row = capsys.readouterr().out.splitlines()
    assert header.split()[:2] == ["network", "data"]
    assert row.split()[:6] == ["resnet20", "CIFAR-10", "87.4", "267,264", "3,834", "40,108,032"]


def test_json_has_plain_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "vgg_small", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["models"]
    assert (row["binary_weights"], row["published_top1"]) == (4_571_136, 92.2)


def test_a_pattern_without_a_match_names_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "resnet-50"]) == 2
    assert "no network matches 'resnet-50': there are" in capsys.readouterr().err
