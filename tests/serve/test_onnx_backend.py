from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from filelock import FileLock
from starlette.testclient import TestClient
from tests.serve.conftest import export_network
from tests.serve.pictures import pixels, png

from bitedge.serve.api.errors import ModelFaultError
from bitedge.serve.models.backends import load_model

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
    expected = models["core"].run(images)
    for name in ("float", "integer"):
        model = models[name]
        np.testing.assert_allclose(model.run(images), expected, rtol=1e-4, atol=1e-4)
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
        model = onnx.load_from_string(data)
        del model.metadata_props[:]
        data = model.SerializeToString()
    bad = tmp_path / "model.onnx"
    bad.write_bytes({"cut": data[: len(data) // 2], "noise": b"\x08\x07" + bytes(200), "foreign": data}[damage])
    with pytest.raises(ModelFaultError, match="bitedge export" if damage == "foreign" else "ONNX Runtime refuses"):
        load_model(bad, name="bad", version="1")


def changed(path: Path, target: Path, change: Callable[[onnx.ModelProto], None]) -> Path:
    """A copy of an .onnx file with something done to it."""
    model = onnx.load(path)
    change(model)
    onnx.save(model, target)
    return target


@pytest.mark.parametrize("file", ["model.onnx", "model.int8.onnx"])
def test_a_network_that_no_longer_gives_its_golden_answers_is_refused(
    artifacts: Path, tmp_path: Path, file: str
) -> None:
    def flip_a_weight(model: onnx.ModelProto) -> None:
        weights = max(model.graph.initializer, key=lambda tensor: len(tensor.raw_data))
        array = onnx.numpy_helper.to_array(weights).copy()
        array[0] = -array[0]
        weights.CopyFrom(onnx.numpy_helper.from_array(array, weights.name))

    bad = changed(artifacts / file, tmp_path / file, flip_a_weight)
    with pytest.raises(ModelFaultError, match=r"golden vector \d: the answer is"):
        load_model(bad, name="bad", version="1")


@pytest.mark.parametrize(
    "golden", ["nonsense", "{}", '{"seed": 1, "output": [[1.0, 2.0]]}', '{"seed": 1, "output": 3}']
)
def test_golden_vectors_that_make_no_sense_are_refused(artifacts: Path, tmp_path: Path, golden: str) -> None:
    def replace(model: onnx.ModelProto) -> None:
        (row,) = [row for row in model.metadata_props if row.key == "bitedge.golden"]
        row.value = golden

    with pytest.raises(ModelFaultError, match="the golden vectors"):
        load_model(changed(artifacts / "model.onnx", tmp_path / "model.onnx", replace), name="bad", version="1")


def test_a_file_without_golden_vectors_must_still_answer(artifacts: Path, tmp_path: Path) -> None:
    def strip(model: onnx.ModelProto) -> None:
        (row,) = [row for row in model.metadata_props if row.key == "bitedge.golden"]
        model.metadata_props.remove(row)

    def spoil(model: onnx.ModelProto) -> None:
        strip(model)
        for tensor in model.graph.initializer:
            if tensor.data_type == onnx.TensorProto.FLOAT:
                array = np.full(tuple(tensor.dims), np.nan, np.float32)
                tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))

    plain = load_model(changed(artifacts / "model.onnx", tmp_path / "a.onnx", strip), name="plain", version="1")
    assert plain.output_count == 10
    with pytest.raises(ModelFaultError, match="a trial run gave no finite 10 outputs"):
        load_model(changed(artifacts / "model.onnx", tmp_path / "b.onnx", spoil), name="bad", version="1")


def test_without_onnx_runtime_the_extra_is_named(artifacts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ModelFaultError, match=r"pip install 'bitedge\[onnx\]'"):
        load_model(artifacts / "model.onnx", name="x", version="1")
