"""NVIDIA's own gRPC client, unmodified, against a running server."""

from __future__ import annotations

import queue
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its own dependencies', not ours
    import tritonclient.grpc as triton
    from tritonclient.grpc import service_pb2

from tests.serve.pictures import pixels
from tests.serve.running_server import RunningServer, free_port

from bitedge.runtime import Model
from bitedge.serve.api.grpc import messages
from bitedge.serve.security.keys import new_key

Networks = tuple[Path, Path]


@pytest.fixture
def start(start_server: Callable[..., RunningServer]) -> Iterator[Callable[..., tuple[Any, RunningServer]]]:
    clients: list[Any] = []

    def start(*options: str) -> tuple[Any, RunningServer]:
        port = free_port()
        server = start_server("--grpc-port", str(port), *options)
        clients.append(triton.InferenceServerClient(f"127.0.0.1:{port}"))
        return clients[-1], server

    yield start
    for client in clients:
        client.close()


def tensor(images: Any) -> Any:
    holder = triton.InferInput("image", list(images.shape), "UINT8")
    holder.set_data_from_numpy(images)
    return holder


def test_our_messages_are_those_of_the_protocol() -> None:
    """Every field that we know has the name, number, type and cardinality of Triton's own definition."""
    from tritonclient.grpc import model_config_pb2

    theirs = {**service_pb2.DESCRIPTOR.message_types_by_name, **model_config_pb2.DESCRIPTOR.message_types_by_name}
    ours = messages().FindFileByName("open_inference.proto").message_types_by_name

    def compare(own: Any, other: Any) -> None:
        for field in own.fields:
            same = other.fields_by_name[field.name]
            assert (field.number, field.type) == (same.number, same.type), field.full_name
            assert field.is_repeated == same.is_repeated, field.full_name
        for name, nested in own.nested_types_by_name.items():
            compare(nested, other.nested_types_by_name[name])

    assert len(ours) > 30
    for name, descriptor in ours.items():
        compare(descriptor, theirs[name])


def test_everything_that_the_client_can_ask(
    start: Callable[..., tuple[Any, RunningServer]], networks: Networks, repository: Path
) -> None:
    client, server = start("--admin", "open", "--workers", "2")
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("first", "1")
    assert not client.is_model_ready("nobody")
    assert client.get_server_metadata().name == "bitedge"
    metadata = client.get_model_metadata("first", as_json=True)
    assert metadata["versions"] == ["1", "2"]
    config = client.get_model_config("first").config
    assert (config.max_batch_size, config.input[0].format, list(config.input[0].dims)) == (64, 1, [32, 32, 3])
    name = metadata["outputs"][0]["name"]
    images = np.stack([pixels(seed) for seed in range(3)])
    logits = Model(networks[0]).run(images)
    answer = client.infer("first", [tensor(images)], "1", request_id="r-1")
    np.testing.assert_allclose(answer.as_numpy(name), logits, rtol=1e-6)
    assert (answer.get_response().id, answer.get_response().model_version) == ("r-1", "1")
    wanted = triton.InferRequestedOutput(name, class_count=3)
    best = client.infer("first", [tensor(images)], "1", [wanted], timeout=20_000_000).as_numpy(name)
    expected = np.argsort(-logits, axis=1, kind="stable")[:, :3]
    assert [[int(text.split(b":")[1]) for text in row] for row in best] == expected.tolist()
    statistics = client.get_inference_statistics("first", "1").model_stats
    assert [row.inference_count for row in statistics] == [6]
    client.unload_model("first")
    assert not client.is_model_ready("first")
    states = {(row.name, row.version): row.state for row in client.get_model_repository_index().models}
    assert states["first", "2"] == "UNAVAILABLE"
    client.load_model("first")
    assert client.is_model_ready("first")
    lines = [line for line in server.events("request") if line["method"] == "gRPC"]
    assert {"/inference.GRPCInferenceService/ModelInfer"} <= {line["path"] for line in lines}


def test_asynchronous_and_streaming_inference(
    start: Callable[..., tuple[Any, RunningServer]], networks: Networks
) -> None:
    client, _ = start()
    name = client.get_model_metadata("first").outputs[0].name
    results: queue.Queue[Any] = queue.Queue()

    def done(result: Any, error: Any) -> None:
        results.put(error if error is not None else result)

    for seed in range(8):
        client.async_infer("first", [tensor(pixels(seed)[None])], done, request_id=str(seed))
    answers = {(answer := results.get(timeout=60)).get_response().id: answer.as_numpy(name) for _ in range(8)}
    logits = Model(networks[1]).run(np.stack([pixels(seed) for seed in range(8)]))
    np.testing.assert_allclose([answers[str(seed)][0] for seed in range(8)], logits, rtol=1e-6)
    client.start_stream(done)
    for seed in range(8):
        client.async_stream_infer("first", [tensor(pixels(seed)[None])], request_id=str(seed))
    client.async_stream_infer("nobody", [tensor(pixels()[None])])
    streamed = [results.get(timeout=60) for _ in range(9)]
    client.stop_stream()
    assert [answer.get_response().id for answer in streamed[:8]] == [str(seed) for seed in range(8)]
    np.testing.assert_allclose([answer.as_numpy(name)[0] for answer in streamed[:8]], logits, rtol=1e-6)
    assert "there is no model nobody" in str(streamed[8])


def test_errors_and_keys(start: Callable[..., tuple[Any, RunningServer]], tmp_path: Path) -> None:
    secret, line = new_key("robot")
    (tmp_path / "keys").write_text(line)
    client, server = start("--keys-file", str(tmp_path / "keys"), "--queue", "16")
    headers = {"x-api-key": secret}
    assert client.is_server_live()
    for call, status, message in (
        (client.get_server_metadata, "UNAUTHENTICATED", "needs an API key"),
        (lambda: client.infer("first", [tensor(pixels()[None])]), "UNAUTHENTICATED", "needs an API key"),
        (lambda: client.unload_model("first", headers=headers), "PERMISSION_DENIED", "does not allow admin"),
        (lambda: client.get_model_metadata("no", headers=headers), "NOT_FOUND", "there is no model no"),
        (
            lambda: client.infer("first", [tensor(pixels()[None, :16])], headers=headers),
            "INVALID_ARGUMENT",
            "expected shape",
        ),
        (
            lambda: client.infer("first", [tensor(np.stack([pixels()] * 17))], headers=headers),
            "INVALID_ARGUMENT",
            "at most 16 images",
        ),
    ):
        with pytest.raises(triton.InferenceServerException, match=message) as caught:
            call()
        assert caught.value.status() == f"StatusCode.{status}"
    metrics = httpx2.get(f"{server.url}/metrics", headers=headers)
    assert metrics.status_code == 403
    assert not server.events("request failed")


def test_the_calls_of_nvidias_image_client(start: Callable[..., tuple[Any, RunningServer]], networks: Networks) -> None:
    """What `image_client.py` of triton-inference-server/client calls, in its five modes, with its arguments."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import tritonclient.http as http

    client, server = start()
    images = np.stack([pixels(seed) for seed in range(2)])
    metadata = client.get_model_metadata(model_name="first", model_version="")
    config = client.get_model_config(model_name="first", model_version="")
    name, results = metadata.outputs[0].name, queue.Queue[Any]()
    assert (config.config.max_batch_size, len(config.config.input), config.config.input[0].format) == (64, 1, 1)
    assert (len(metadata.inputs), len(metadata.outputs), metadata.outputs[0].datatype) == (1, 1, "FP32")

    def request(library: Any) -> dict[str, Any]:
        holder = library.InferInput("image", images.shape, "UINT8")
        holder.set_data_from_numpy(images)
        outputs = [library.InferRequestedOutput(name, class_count=2)]
        return {"inputs": [holder], "outputs": outputs, "request_id": "1", "model_version": ""}

    def done(result: Any, error: Any) -> None:
        results.put(error if error is not None else result)

    answers = [client.infer("first", **request(triton))]
    client.async_infer("first", callback=done, **request(triton))
    answers.append(results.get(timeout=60))
    client.start_stream(done)
    client.async_stream_infer("first", **request(triton))
    client.stop_stream()
    answers.append(results.get(timeout=60))
    assert {answer.get_response().id for answer in answers} == {"1"}
    over_http = http.InferenceServerClient(server.address, concurrency=20)
    assert over_http.get_model_config("first", "")["input"][0]["format"] == "FORMAT_NHWC"
    answers.append(over_http.infer("first", **request(http)))
    answers.append(over_http.async_infer("first", **request(http)).get_result())
    over_http.close()
    best = np.argsort(-Model(networks[1]).run(images), axis=1, kind="stable")[:, :2]
    for answer in answers:
        texts = [[element.decode().split(":") for element in row] for row in answer.as_numpy(name)]
        assert [[int(index) for _, index, _ in row] for row in texts] == best.tolist()
        assert [[label for _, _, label in row] for row in texts] == [[f"class-{i}" for i in row] for row in best]
