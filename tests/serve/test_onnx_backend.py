from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from starlette.testclient import TestClient
from tests.serve.conftest import export_network
from tests.serve.pictures import pixels, png

from bitedge.serve.backends import load_model
from bitedge.serve.errors import ModelFaultError

ARTIFACTS = {"core": "model.gguf", "float": "model.onnx", "integer": "model.int8.onnx"}


@pytest.fixture(scope="session")
def artifacts(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """One network in all formats that can be served."""
    base = tmp_path_factory.getbasetemp() if worker_id == "master" else tmp_path_factory.getbasetemp().parent
    with FileLock(base / "serve-artifacts.lock"):
        if not (base / "serve-artifacts" / "model.int8.onnx").exists():
            export_network(base / "serve-artifacts", 1, formats=("gguf", "onnx", "int8"))
    return base / "serve-artifacts"


def test_every_backend_gives_the_same_answer(artifacts: Path) -> None:
    images = np.stack([pixels(seed) for seed in range(8)])
    models = {name: load_model(artifacts / file, name=name, version="1") for name, file in ARTIFACTS.items()}
    expected = models["core"].context()(images)
    for name in ("float", "integer"):
        model = models[name]
        np.testing.assert_allclose(model.context()(images), expected, rtol=1e-4, atol=1e-4)
        assert (model.backend, model.platform) == ("onnxruntime", "onnxruntime_onnx")
        assert model.labels == models["core"].labels
        assert model.geometry == models["core"].geometry
        assert (model.input_type, model.input_shape) == ("UINT8", (32, 32, 3))


def test_all_are_served_side_by_side(artifacts: Path, tmp_path: Path, make_client: Callable[..., TestClient]) -> None:
    for name, file in ARTIFACTS.items():
        (tmp_path / "side" / name / "1").mkdir(parents=True)
        shutil.copy(artifacts / file, tmp_path / "side" / name / "1")
    client = make_client(models=tmp_path / "side")
    best = {name: client.post(f"/v1/classify?model={name}", content=png()).json()["predictions"] for name in ARTIFACTS}
    for name in ("float", "integer"):
        assert [row["label"] for row in best[name]] == [row["label"] for row in best["core"]]
        scores = [[row["score"] for row in best[which]] for which in (name, "core")]
        assert scores[0] == pytest.approx(scores[1], abs=1e-4)
    cards = {card["name"]: card for card in client.get("/v1/models").json()["models"]}
    assert cards["float"]["backend"] == "onnxruntime"
    assert cards["float"]["kernels"][0].startswith("onnxruntime ")


@pytest.mark.parametrize("damage", ["cut", "noise", "foreign"])
def test_a_bad_file_is_refused(artifacts: Path, tmp_path: Path, damage: str) -> None:
    data = (artifacts / "model.onnx").read_bytes()
    if damage == "foreign":
        import onnx

        model = onnx.load_from_string(data)
        del model.metadata_props[:]
        data = model.SerializeToString()
    bad = tmp_path / "model.onnx"
    bad.write_bytes({"cut": data[: len(data) // 2], "noise": b"\x08\x07" + bytes(200), "foreign": data}[damage])
    with pytest.raises(ModelFaultError, match="bitedge export" if damage == "foreign" else "ONNX Runtime refuses"):
        load_model(bad, name="bad", version="1")


def test_without_onnx_runtime_the_extra_is_named(artifacts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ModelFaultError, match=r"pip install 'bitedge\[onnx\]'"):
        load_model(artifacts / "model.onnx", name="x", version="1")
