"""The verbs `train` and `eval`: what they print, where they write, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.train.small_runs import SMALL

from bitedge.cli.main import main
from bitedge.train.recipes.recipe import list_recipes

CHANGES = [word for change in SMALL for word in ("--set", change)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("verb") / "run"
    assert main(["train", "--recipe", "digits", "--out", str(folder), *CHANGES]) == 0
    return folder


def test_list_shows_every_recipe_with_its_expected_result(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--list"]) == 0
    text = capsys.readouterr().out
    assert all(f"\n{name} " in text for name in list_recipes())
    assert "91.9 %" in text
    assert "\nablation " in text
    assert main(["train", "--list", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [recipe["name"] for recipe in data["recipes"]] == list_recipes()


def test_print_recipe_is_a_recipe(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["train", "--recipe", "digits", "--set", "epochs=7", "--print-recipe"]) == 0
    text = capsys.readouterr().out
    assert "epochs = 7\n" in text
    path = tmp_path / "mine.toml"
    path.write_text(text)
    assert main(["train", "--recipe", str(path), "--print-recipe"]) == 0
    assert capsys.readouterr().out == text


def test_training_prints_the_result_as_json(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--resume", "--out", str(trained), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["run"] == str(trained)
    assert data["training"]["epoch"] == 2


def test_eval_prints_what_the_run_recorded(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded = json.loads((trained / "model.json").read_text())["training"]
    for checkpoint in ("best", "last"):
        assert main(["eval", str(trained), "--checkpoint", checkpoint, "--json"]) == 0
        data = json.loads(capsys.readouterr().out)
        assert data["accuracy"] == recorded["test"][checkpoint]["accuracy"]
        assert data["images"] == 360
    assert main(["eval", str(trained), "--split", "validation", "--checkpoint", "last"]) == 0
    assert f"{recorded['last']['accuracy']:.2%}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train"], "give --recipe NAME"),
        (["train", "--recipe", "digts"], "did you mean 'digits'?"),
        (["train", "--recipe", "digits", "--set", "epoch=3"], "did you mean 'epochs'?"),
        (["train", "--recipe", "cifar10-small"], "give --data DIR"),
        (["train", "--recipe", "cifar10-small", "--data", "/nonexistent"], "no CIFAR-10 at /nonexistent"),
        (["train", "--recipe", "digits", "--set", "network.arguments.widht=3"], "did you mean 'width'?"),
        (["train", "sweep"], "give one sweep"),
        (["train", "sweep", "ablaton"], "did you mean 'ablation'?"),
        (["train", "sweep", "ablation", "--set", "epochs=1"], "under [set]"),
        (["train", "compare", "--seeds", "a,b"], "expected whole numbers"),
        (["train", "comapre"], "did you mean 'compare'?"),
        (["train", "--recip", "digits"], "did you mean --recipe?"),
        (["eval", "/nonexistent"], "is not a run folder"),
        (["eval"], "the following arguments are required"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert len(captured.err.strip().splitlines()) == 1
    assert not list(tmp_path.glob("runs/*/state.pt"))


def test_compare_and_sweep_print_their_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "comparison"
    words = ["train", "compare", "digits", "--seeds", "3", "--out", str(out), *CHANGES, "--set", "epochs=1"]
    assert main(words) == 0
    assert "test last %" in capsys.readouterr().out
    sweep = tmp_path / "tiny.toml"
    shared = "\n".join(
        f'"{key}" = {value}' for key, value in (change.split("=") for change in (*SMALL[1:], "epochs=1"))
    )
    head = 'name = "tiny"\ntitle = "tiny"\nrecipe = "digits"\nsearch = "grid"\n'
    sweep.write_text(f"{head}[set]\n{shared}\n[space]\nseed = [3]\n")
    assert main(["train", "sweep", str(sweep), "--out", str(tmp_path / "sweep"), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    last = json.loads((out / "digits-seed3" / "model.json").read_text())["training"]["test"]["last"]["accuracy"]
    assert float(data["trials"][0]["test"]) == pytest.approx(last, abs=1e-4)
