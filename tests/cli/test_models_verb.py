"""`bitedge models`: the table of networks."""

from __future__ import annotations

import json

import pytest

from bitedge.cli.main import main
from bitedge.train import list_pretrained, load_run


def test_counts_and_published_figures_are_in_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "*net20"]) == 0
    header, _, row = capsys.readouterr().out.splitlines()
    assert header.split()[:2] == ["network", "data"]
    assert row.split()[:6] == ["resnet20", "CIFAR-10", "87.4", "267,264", "3,834", "40,108,032"]


def test_json_has_plain_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "vgg_small", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["models"]
    assert (row["binary_weights"], row["published_top1"]) == (4_571_136, 92.2)


def test_trained_models_are_listed_with_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "binarynet", "--json"]) == 0
    trained = {row["name"]: row for row in json.loads(capsys.readouterr().out)["pretrained"]}
    assert sorted(trained) == list_pretrained()
    for name, row in trained.items():
        scores = load_run(name).training["test"]["best"]
        assert (row["top1"], row["images"]) == (100 * scores["accuracy"], scores["images"])
    assert main(["models", "binarynet"]) == 0
    assert f"{trained['cifar10']['top1']:.2f}" in capsys.readouterr().out


def test_a_pattern_without_a_match_names_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "resnet-50"]) == 2
    assert "no network matches 'resnet-50': there are" in capsys.readouterr().err
