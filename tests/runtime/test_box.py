"""The models in the box: found by name, true to their golden vectors, and as good as they say."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from bitedge.runtime import Model, RuntimeFault, boxed_models, find_model
from bitedge.runtime.box import DEFAULT, MODELS
from bitedge.train import TrainError, from_pretrained, list_pretrained
from bitedge.train.engine.run import BUNDLED, load_run

README = Path(__file__).parents[2] / "README.md"


def test_default_is_in_the_box() -> None:
    assert DEFAULT in boxed_models()


@pytest.mark.parametrize("name", sorted(boxed_models()))
def test_boxed_model_keeps_its_word(name: str, request: pytest.FixtureRequest) -> None:
    path = find_model(name)
    model = Model(path)
    model.check()
    assert path.stat().st_size <= 2**20
    run = load_run(name)
    assert run.folder == BUNDLED / name
    data = request.getfixturevalue("cifar10_dir") if run.recipe.data.name == "cifar10" else None
    images, labels = run.evaluation(data)
    accuracy = float((model.run(images).argmax(1) == labels).mean())
    assert model.training is not None
    assert model.training["measured_on"] == "test"
    assert accuracy == pytest.approx(model.training["accuracy"], abs=1e-9)
    assert accuracy == pytest.approx(run.training["test"]["best"]["accuracy"], abs=1e-9)
    assert f"{100 * accuracy:.2f} %" in re.sub(r"\s+", " ", README.read_text(encoding="utf-8"))


def test_newest_version_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("2", "10", "9"):
        (tmp_path / "net" / version).mkdir(parents=True)
        (tmp_path / "net" / version / "model.gguf").touch()
    monkeypatch.setattr("bitedge.runtime.box.MODELS", tmp_path)
    assert find_model("net") == tmp_path / "net" / "10" / "model.gguf"


def test_paths_are_left_alone_and_unknown_names_refused() -> None:
    assert find_model("here/model.gguf") == Path("here/model.gguf")
    assert find_model(Path("model.gguf")) == Path("model.gguf")
    with pytest.raises(RuntimeFault, match=f"no model 'cifar' in the box: it holds {DEFAULT}, digits"):
        find_model("cifar")


def test_box_is_laid_out_for_serving() -> None:
    assert {path.name for path in MODELS.iterdir() if path.is_dir()} == set(boxed_models())
    assert np.all([path.parent.name.isdigit() for path in boxed_models().values()])


def test_a_trained_network_is_had_by_its_name() -> None:
    assert list_pretrained() == sorted(boxed_models())
    module = from_pretrained("digits")
    assert not module.training
    for name, value in load_run("digits").module.state_dict().items():
        torch.testing.assert_close(module.state_dict()[name], value, rtol=0, atol=0)
    with pytest.raises(TrainError, match="no trained model 'imagenet': there are cifar10, digits"):
        from_pretrained("imagenet")
