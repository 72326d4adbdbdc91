from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient
from tests.serve.pictures import encoded, pixels, png

from bitedge.runtime import Model

Pair = tuple[Path, Path]


def expected_scores(path: Path, seed: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    logits = Model(path).run(pixels(seed)[None])[0].astype(np.float64)
    raised = np.exp(logits - logits.max())
    return np.asarray(raised / raised.sum())


def test_a_raw_body_is_classified_as_the_core_does(client: TestClient, networks: Pair) -> None:
    for seed in range(5):
        answer = client.post("/v1/classify?top_k=10", content=png(seed), headers={"content-type": "image/png"})
        assert answer.status_code == 200
        body = answer.json()
        assert (body["model"], body["version"]) == ("first", "2")
        scores = expected_scores(networks[1], seed)
        assert [row["index"] for row in body["predictions"]] == np.argsort(-scores, kind="stable").tolist()
        for row in body["predictions"]:
            assert row["score"] == pytest.approx(scores[row["index"]], abs=1e-5)
            assert row["label"] == f"class-{row['index']}"


def test_model_and_version_choose_the_network(client: TestClient, networks: Pair) -> None:
    for query, path in (("model=first&version=1", networks[0]), ("model=second", networks[1])):
        body = client.post(f"/v1/classify?top_k=1&{query}", content=png(3)).json()
        assert body["predictions"][0]["score"] == pytest.approx(expected_scores(path, 3).max(), abs=1e-5)


@pytest.mark.parametrize("name", ["image", "file"])
def test_a_form_is_classified_like_a_raw_body(client: TestClient, name: str) -> None:
    raw = client.post("/v1/classify", content=png()).json()
    form = client.post("/v1/classify", files={name: ("x.png", png(), "image/png")}).json()
    assert form["predictions"] == raw["predictions"]


def test_base64_in_json_is_classified_like_a_raw_body(client: TestClient) -> None:
    raw = client.post("/v1/classify", content=png()).json()
    text = base64.b64encode(png()).decode()
    assert client.post("/v1/classify", json={"image": text}).json()["predictions"] == raw["predictions"]
    batch = client.post("/v1/classify/batch", json={"images": [text, text]}).json()["results"]
    assert [item["predictions"] for item in batch] == [raw["predictions"]] * 2
    many = client.post("/v1/classify/batch", json={"images": [text] * 65})
    assert (many.status_code, "at most 64 images" in many.json()["error"]) == (400, True)


@pytest.mark.parametrize("format", ["JPEG", "WEBP", "BMP", "PNG"])
def test_every_format_is_taken(client: TestClient, format: str) -> None:
    body = encoded(pixels(), format)
    assert client.post("/v1/classify", content=body, headers={"content-type": "image/*"}).status_code == 200


def test_timing_is_in_the_body_and_the_header(client: TestClient) -> None:
    answer = client.post("/v1/classify", content=png())
    timing = answer.json()["timing"]
    assert timing["batch_size"] == 1
    parts = timing["decode_ms"] + timing["queue_ms"] + timing["inference_ms"]
    assert 0 < parts <= timing["total_ms"] + 0.01
    names = re.findall(r"(\w+);", answer.headers["server-timing"])
    assert names == ["decode", "queue", "inference", "total", "batch"]
    assert f"inference;dur={timing['inference_ms']}" in answer.headers["server-timing"]


def test_several_images_keep_their_order_and_their_own_errors(client: TestClient) -> None:
    bodies = [png(0), b"not an image", png(1, 64, 48)]
    files = [("image", (f"{i}.png", body, "image/png")) for i, body in enumerate(bodies)]
    results = client.post("/v1/classify/batch?top_k=2", files=files).json()["results"]
    assert results[0]["predictions"] == client.post("/v1/classify?top_k=2", content=png(0)).json()["predictions"]
    assert results[1] == {"error": results[1]["error"]}
    assert "expected a JPEG" in results[1]["error"]
    assert len(results[2]["predictions"]) == 2


def test_a_batch_without_any_image_that_can_be_read_fails(client: TestClient) -> None:
    answer = client.post("/v1/classify/batch", files=[("image", ("a", b"a")), ("image", ("b", b"b"))])
    assert answer.status_code == 415


def test_the_preview_is_exactly_what_the_network_gets(client: TestClient) -> None:
    answer = client.post("/v1/preview", content=png(7, 80, 50))
    assert answer.headers["content-type"] == "image/png"
    seen = np.asarray(Image.open(io.BytesIO(answer.content)))
    expected = np.asarray(Image.fromarray(pixels(7, 80, 50)).resize((32, 32), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(seen, expected)


def test_a_large_image_is_decoded_apart_and_classified(client: TestClient) -> None:
    assert client.post("/v1/classify", content=png(1, 700, 900)).status_code == 200


@pytest.mark.parametrize(
    ("query", "body", "headers", "status", "message"),
    [
        ("", b"", {}, 400, "no bytes at all"),
        ("", b"hello", {}, 415, "expected a JPEG, PNG, WEBP, BMP image"),
        ("", png()[:-40], {}, 400, "cannot be decoded"),
        ("", png(), {"content-type": "text/plain"}, 415, "expected a raw body"),
        ("", png(), {"content-type": "application/json"}, 400, 'expected {"image": "base64"}'),
        ("", b'{"image": 3}', {"content-type": "application/json"}, 400, 'expected {"image": "base64"}'),
        ("", b'{"image": "a!"}', {"content-type": "application/json"}, 400, "base64"),
        ("", b'{"image": "", "x": 1}', {"content-type": "application/json"}, 400, "nothing else"),
        ("", b'{"image": ""}', {"content-type": "application/json"}, 400, "no bytes at all"),
        ("", png(), {"content-encoding": "gzip"}, 415, "content-encoding gzip"),
        ("", b"x", {"content-type": "multipart/form-data"}, 400, "boundary"),
        ("", b"x", {"content-type": "multipart/form-data; boundary=a"}, 400, "multipart"),
        ("?model=nobody", png(), {}, 404, "there is no model nobody"),
        ("?model=../etc", png(), {}, 400, "model"),
        ("?version=9", png(), {}, 404, "no version 9"),
        ("?top_k=0", png(), {}, 400, "top_k"),
        ("?top_k=many", png(), {}, 400, "top_k"),
        ("?timeout_ms=nan", png(), {}, 400, "timeout_ms"),
        ("", png(), {"x-timeout-ms": "soon"}, 400, "X-Timeout-Ms"),
    ],
)
def test_bad_requests_say_what_is_wrong(
    client: TestClient, query: str, body: bytes, headers: dict[str, str], status: int, message: str
) -> None:
    answer = client.post(f"/v1/classify{query}", content=body, headers=headers)
    assert answer.status_code == status
    assert list(answer.json()) == ["error"]
    assert message in answer.json()["error"]


def test_paths_and_methods_that_are_not_there(client: TestClient) -> None:
    assert client.get("/nowhere").json() == {"error": "Not Found"}
    answer = client.get("/v1/classify")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert client.get("/static/../app.py").status_code == 404
    assert client.get("/static/app.py").status_code == 404


def test_a_body_above_the_limit_is_refused(make_client: Callable[..., TestClient]) -> None:
    client = make_client(max_body_bytes=4096)
    assert client.post("/v1/classify", content=bytes(4097)).status_code == 413

    def chunks() -> list[bytes]:
        return [bytes(1024)] * 5

    assert client.post("/v1/classify", content=iter(chunks())).status_code == 413
    assert client.post("/v1/classify", content=png()).status_code == 200


def test_an_image_with_too_many_pixels_is_refused(make_client: Callable[..., TestClient]) -> None:
    client = make_client(max_pixels=1000)
    answer = client.post("/v1/classify", content=png())
    assert (answer.status_code, "1000 pixels" in answer.json()["error"]) == (413, True)


def test_models_are_described(client: TestClient, networks: Pair) -> None:
    cards = client.get("/v1/models").json()["models"]
    assert [(card["name"], card["version"], card["state"]) for card in cards] == [
        ("first", "1", "READY"),
        ("first", "2", "READY"),
        ("second", "1", "READY"),
    ]
    assert cards[0]["size_bytes"] == networks[0].stat().st_size
    assert cards[0]["one_bit_weights"] == 1.0
    assert cards[0]["kernels"]
    card = client.get("/v1/models/second").json()
    assert (card["classes"], card["labels"][3], card["input_shape"]) == (10, "class-3", [32, 32, 3])
    assert client.get("/v1/models/nobody").status_code == 404


def test_every_answer_has_the_security_headers_and_a_request_id(client: TestClient) -> None:
    for path in ("/", "/v1/models", "/nowhere", "/healthz", "/openapi.json"):
        headers = client.get(path, headers={"x-request-id": "abc-1"}).headers
        assert headers["x-request-id"] == "abc-1"
        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
    assert re.fullmatch("[0-9a-f]{16}", client.get("/", headers={"x-request-id": "a b"}).headers["x-request-id"])


def test_a_digit_of_the_slice_is_recognised(make_client: Callable[..., TestClient], digits_model: Path) -> None:
    """The whole way: a network trained by the recipe `digits`, exported, served, and asked about held-out scans."""
    from bitedge.train.engine.run import load_run

    client = make_client(models=digits_model)
    images, labels = load_run(digits_model.parents[1]).evaluation(limit=40)
    right = 0
    for image, label in zip(images, labels, strict=True):
        answer = client.post("/v1/classify?top_k=1", content=encoded(image)).json()
        right += answer["predictions"][0]["label"] == str(label)
    assert right >= 36
