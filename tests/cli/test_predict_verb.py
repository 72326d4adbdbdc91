"""`bitedge predict`: images in, classes out, and one line for everything that is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from bitedge.cli.main import main
from bitedge.runtime import Model, find_model

Digit = NDArray[np.uint8]


@pytest.fixture(scope="module")
def digit(digits_run: Path) -> Digit:
    from bitedge.train import load_run

    images, _ = load_run(digits_run).evaluation(limit=1)
    first: Digit = images[0]
    return first


def test_png_and_array_give_the_models_own_answer(
    digits_model: Path,
    digit: Digit,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Image.fromarray(digit).save(tmp_path / "digit.png")
    np.save(tmp_path / "digit.npy", digit)
    words = [
        "predict",
        str(digits_model),
        str(tmp_path / "digit.png"),
        str(tmp_path / "digit.npy"),
        "--top-k",
        "10",
        "--json",
    ]
    assert main(words) == 0
    first, second = json.loads(capsys.readouterr().out)["predictions"]
    assert first["classes"] == second["classes"]
    logits = Model(digits_model).run(digit[None])[0].astype(np.float64)
    assert [entry["label"] for entry in first["classes"]] == [str(label) for label in np.argsort(-logits)]
    expected = np.exp(logits) / np.exp(logits).sum()
    assert np.allclose([entry["score"] for entry in first["classes"]], np.sort(expected)[::-1], atol=1e-6)


def test_text_names_every_image(
    digits_model: Path,
    digit: Digit,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    np.save(tmp_path / "a.npy", digit)
    np.save(tmp_path / "b.npy", digit)
    assert main(["predict", str(digits_model), str(tmp_path / "a.npy"), str(tmp_path / "b.npy"), "--top-k", "1"]) == 0
    out = capsys.readouterr().out
    assert "a.npy" in out
    assert "b.npy" in out


def test_a_network_with_its_own_softmax_is_not_squashed_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch
    from torch import nn

    from bitedge.export import export

    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.Softmax(dim=1)).eval()
    grid = {"size": [2, 2], "resize": None, "interpolation": "bilinear", "scale": [2 / 256] * 3, "offset": [0.0] * 3}
    export(network, (3, 2, 2), tmp_path, formats=("gguf",), preprocessing=grid)
    np.save(tmp_path / "image.npy", np.full((2, 2, 3), 200, np.uint8))
    words = ["predict", str(tmp_path / "model.gguf"), str(tmp_path / "image.npy"), "--top-k", "4", "--json"]
    assert main(words) == 0
    scores = [entry["score"] for entry in json.loads(capsys.readouterr().out)["predictions"][0]["classes"]]
    with torch.no_grad():
        expected = network(torch.full((1, 3, 2, 2), 200 * 2 / 256))[0].sort(descending=True).values
    assert np.allclose(scores, expected, atol=1e-6)


def bad(tmp_path: Path, model: Path, name: str) -> list[str]:
    image = tmp_path / name
    if name == "text.png":
        image.write_text("not an image")
    elif name == "shape.npy":
        np.save(image, np.zeros((8, 8, 3), np.uint8))
    elif name == "kind.npy":
        np.save(image, np.zeros((32, 32, 3), np.float64))
    elif name == "objects.npy":
        np.save(image, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    elif name == "garbage.npy":
        image.write_bytes(b"\x93NUMPY garbage")
    return [str(model), str(image)]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("text.png", "text.png"),
        ("absent.png", "absent.png"),
        ("absent.npy", "No such file"),
        ("shape.npy", "expected uint8 of shape [32, 32, 3]"),
        ("kind.npy", "got float64"),
        ("objects.npy", "not a .npy array of plain numbers"),
        ("garbage.npy", "not a .npy array of plain numbers"),
    ],
)
def test_a_bad_image_is_one_line(
    name: str, message: str, digits_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", *bad(tmp_path, digits_model, name)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_bad_model_is_one_line(digits_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = digits_model.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 4
    for name, content in (("short.gguf", whole[:-100]), ("flipped.gguf", bytes(flipped)), ("empty.gguf", b"")):
        (tmp_path / name).write_bytes(content)
        assert main(["predict", str(tmp_path / name), "x.npy"]) == 2
        error = capsys.readouterr().err
        assert name in error
        assert error.count("\n") == 1
    assert main(["predict", str(tmp_path / "absent.gguf"), "x.npy"]) == 2
    assert "absent.gguf" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--top-k", "0"], ["--threads", "0"], ["--top-k", "many"]])
def test_bad_options_are_one_line(words: list[str], digits_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(digits_model), "x.npy", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_box_needs_no_model(digit: Digit, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.fromarray(digit).save(tmp_path / "digit.png")
    label = Model(find_model("digits")).run(digit[None])[0].argmax()
    assert main(["predict", "--model", "digits", str(tmp_path / "digit.png"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["predictions"][0]["classes"][0]["label"] == str(label)
    assert main(["predict", str(tmp_path / "digit.png"), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["predictions"][0]["classes"][0]["label"] in Model(find_model("cifar10")).labels


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["model.gguf"], "expected images after the model"),
        (["model.gguf", "a.png", "--model", "digits"], "two models, model.gguf and --model digits"),
        (["--model", "cifar", "a.png"], "no model 'cifar' in the box"),
    ],
)
def test_confused_models_are_refused(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", *words]) == 2
    assert message in capsys.readouterr().err
