"""NVIDIA's own client, unmodified, against a running server."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its own dependencies', not ours
    import tritonclient.http as triton

from tests.serve.pictures import pixels
from tests.serve.running_server import RunningServer

from bitedge.runtime import Model


@pytest.fixture
def client(shared_server: RunningServer) -> Iterator[Any]:
    client = triton.InferenceServerClient(shared_server.address)
    yield client
    client.close()


@pytest.fixture
def own_client(start_server: Callable[..., RunningServer]) -> Iterator[Any]:
    """A client of a server that the test may change."""
    client = triton.InferenceServerClient(start_server("--admin", "open").address)
    yield client
    client.close()


def tensor(images: Any, *, binary: bool = True) -> Any:
    holder = triton.InferInput("image", list(images.shape), "UINT8")
    holder.set_data_from_numpy(images, binary_data=binary)
    return holder


def test_health_and_metadata(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("first")
    assert client.is_model_ready("first", "1")
    assert not client.is_model_ready("first", "7")
    assert not client.is_model_ready("nobody")
    server = client.get_server_metadata()
    assert server["name"] == "bitedge"
    assert {"binary_tensor_data", "classification", "statistics", "model_repository"} <= set(server["extensions"])
    model = client.get_model_metadata("first")
    assert model["versions"] == ["1", "2"]
    assert model["inputs"] == [{"name": "image", "datatype": "UINT8", "shape": [-1, 32, 32, 3]}]
    assert model["outputs"][0]["shape"] == [-1, 10]
    config = client.get_model_config("first", "1")
    assert (config["input"][0]["format"], config["input"][0]["dims"]) == ("FORMAT_NHWC", [32, 32, 3])
    assert config["max_batch_size"] == 64


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False, None])
def test_inference_gives_what_the_core_gives(
    client: Any, networks: tuple[Path, Path], binary_in: bool, binary_out: bool | None
) -> None:
    images = np.stack([pixels(seed) for seed in range(3)])
    name = client.get_model_metadata("first")["outputs"][0]["name"]
    outputs = None if binary_out is None else [triton.InferRequestedOutput(name, binary_data=binary_out)]
    for version, path in zip(("1", "2"), networks, strict=True):
        result = client.infer("first", [tensor(images, binary=binary_in)], version, outputs, request_id="r-1")
        np.testing.assert_allclose(result.as_numpy(name), Model(path).run(images), rtol=1e-6)
        answer = result.get_response()
        assert (answer["model_name"], answer["model_version"], answer["id"]) == ("first", version, "r-1")


@pytest.mark.parametrize("binary", [True, False])
def test_classification(client: Any, networks: tuple[Path, Path], binary: bool) -> None:
    images = np.stack([pixels(seed) for seed in range(2)])
    name = client.get_model_metadata("first")["outputs"][0]["name"]
    wanted = triton.InferRequestedOutput(name, binary_data=binary, class_count=3)
    answer = client.infer("first", [tensor(images)], outputs=[wanted]).as_numpy(name)
    assert answer.shape == (2, 3)
    logits = Model(networks[1]).run(images)
    for row, values in zip(answer, logits, strict=True):
        texts = [text.decode() if isinstance(text, bytes) else text for text in row]
        best = np.argsort(-values, kind="stable")[:3]
        assert [text.split(":")[1:] for text in texts] == [[str(i), f"class-{i}"] for i in best]
        assert [float(text.split(":")[0]) for text in texts] == pytest.approx(values[best].tolist(), abs=1e-5)


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compressed_requests(client: Any, algorithm: str) -> None:
    plain = client.infer("first", [tensor(pixels()[None])])
    packed = client.infer("first", [tensor(pixels()[None])], request_compression_algorithm=algorithm)
    assert plain.get_response()["outputs"] == packed.get_response()["outputs"]


def test_async_inference_and_options(client: Any) -> None:
    name = client.get_model_metadata("first")["outputs"][0]["name"]
    pending = [
        client.async_infer("first", [tensor(pixels(seed)[None])], timeout=5_000_000, priority=1) for seed in range(8)
    ]
    assert all(request.get_result().as_numpy(name).shape == (1, 10) for request in pending)


def test_a_raw_binary_request(shared_server: RunningServer, networks: tuple[Path, Path]) -> None:
    import httpx2

    answer = httpx2.post(
        f"{shared_server.url}/v2/models/first/infer",
        content=pixels().tobytes(),
        headers={"Inference-Header-Content-Length": "0"},
    )
    length = int(answer.headers["Inference-Header-Content-Length"])
    outputs = np.frombuffer(answer.content[length:], "<f4")
    np.testing.assert_allclose(outputs, Model(networks[1]).run(pixels()[None])[0], rtol=1e-6)


def test_errors_reach_the_client_as_messages(client: Any) -> None:
    image = pixels()[None]
    with pytest.raises(triton.InferenceServerException, match="there is no model nobody"):
        client.infer("nobody", [tensor(image)])
    with pytest.raises(triton.InferenceServerException, match="expected shape"):
        client.infer("first", [tensor(image[:, :16])])
    wrong = triton.InferInput("picture", [1, 32, 32, 3], "UINT8")
    wrong.set_data_from_numpy(image)
    with pytest.raises(triton.InferenceServerException, match="expected the input image of type UINT8, got picture"):
        client.infer("first", [wrong])
    with pytest.raises(triton.InferenceServerException, match="expected the output"):
        client.infer("first", [tensor(image)], outputs=[triton.InferRequestedOutput("nothing")])


def test_statistics(own_client: Any) -> None:
    assert own_client.get_inference_statistics()["model_stats"] == []
    for _ in range(3):
        own_client.infer("first", [tensor(np.stack([pixels(), pixels(1)]))])
    (row,) = own_client.get_inference_statistics("first", "2")["model_stats"]
    assert (row["inference_count"], row["execution_count"]) == (6, 3)
    assert row["inference_stats"]["compute_infer"]["ns"] > 0
    assert row["last_inference"] > 1_600_000_000_000
    assert own_client.get_inference_statistics("first", "1")["model_stats"] == []


def test_the_repository(own_client: Any, repository: Path) -> None:
    (repository / "broken").mkdir()
    (repository / "broken" / "model.gguf").write_bytes(b"nonsense")
    with pytest.raises(triton.InferenceServerException, match="model broken version 1 is refused"):
        own_client.load_model("broken")
    index = {(row["name"], row["version"]): row for row in own_client.get_model_repository_index()}
    assert index["first", "2"]["state"] == "READY"
    assert index["broken", "1"]["state"] == "UNAVAILABLE"
    assert index["broken", "1"]["reason"]
    own_client.unload_model("first")
    assert not own_client.is_model_ready("first")
    assert own_client.is_server_ready()
    own_client.load_model("first")
    assert own_client.is_model_ready("first", "1")
    with pytest.raises(triton.InferenceServerException, match="takes no configuration"):
        own_client.load_model("first", config="{}")
