"""Who may do what: API keys, scopes, rate limits, other sites' pages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.serve.pictures import png

from bitedge.serve.security.keys import new_key

OPEN = ("/", "/docs", "/openapi.json", "/healthz", "/readyz", "/v2/health/live", "/v2/health/ready", "/static/app.js")
CLOSED = ("/v1/models", "/v2", "/v2/models/first", "/v2/models/stats", "/nowhere")


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    made = {
        name: new_key(name, scopes) for name, scopes in (("user", ("infer",)), ("boss", ("infer", "metrics", "admin")))
    }
    path = tmp_path / "keys"
    path.write_text("\n".join(line for _, line in made.values()))
    return path, {name: secret for name, (secret, _) in made.items()}


@pytest.fixture
def closed(make_client: Callable[..., TestClient], keys: tuple[Path, dict[str, str]]) -> TestClient:
    return make_client(keys_file=keys[0], metrics="key")


def test_without_keys_all_but_loading_is_open(client: TestClient) -> None:
    for path in OPEN + CLOSED[:-1] + ("/metrics",):
        assert client.get(path).status_code == 200, path
    answer = client.post("/v2/repository/models/first/load")
    assert (answer.status_code, "--admin open" in answer.json()["error"]) == (403, True)


def test_with_keys_only_health_and_the_page_are_open(closed: TestClient) -> None:
    for path in OPEN:
        assert closed.get(path).status_code == 200, path
    for path in (*CLOSED, "/metrics"):
        answer = closed.get(path)
        assert answer.status_code == 401, path
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert closed.post("/v1/classify", content=png(), headers={"x-api-key": "be_wrong"}).status_code == 401


@pytest.mark.parametrize("style", ["Authorization", "X-API-Key"])
def test_a_key_opens_its_scopes(closed: TestClient, keys: tuple[Path, dict[str, str]], style: str) -> None:
    def header(name: str) -> dict[str, str]:
        return {style: f"Bearer {keys[1][name]}" if style == "Authorization" else keys[1][name]}

    assert closed.post("/v1/classify", content=png(), headers=header("user")).status_code == 200
    assert closed.get("/metrics", headers=header("user")).status_code == 403
    assert closed.post("/v2/repository/models/first/load", headers=header("user")).status_code == 403
    assert closed.get("/metrics", headers=header("boss")).status_code == 200
    assert closed.post("/v2/repository/models/first/unload", headers=header("boss")).status_code == 200
    assert closed.get("/nowhere", headers=header("user")).status_code == 404


def test_metrics_and_the_page_can_be_switched_off(make_client: Callable[..., TestClient]) -> None:
    client = make_client(metrics="off", page=False)
    assert client.get("/metrics").status_code == 403
    assert client.get("/").status_code == 404
    assert make_client(metrics="key").get("/metrics").status_code == 403, "without keys nobody has one"


def test_another_sites_page_cannot_unload_a_model(make_client: Callable[..., TestClient]) -> None:
    client = make_client(admin="open")
    path = "/v2/repository/models/first/unload"
    assert client.post(path, headers={"origin": "https://elsewhere.example"}).status_code == 403
    assert client.post(path, headers={"origin": "null"}).status_code == 403
    assert client.post(path, headers={"origin": "http://testserver"}).status_code == 200


def test_a_caller_above_its_rate_gets_429(make_client: Callable[..., TestClient]) -> None:
    client = make_client(rate_limit=0.01, rate_burst=3)
    answers = [client.post("/v1/classify", content=png()) for _ in range(5)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 100
    assert client.get("/healthz").status_code == 200
    metrics = client.get("/metrics").text
    assert 'bitedge_shed_total{reason="rate_limit"} 2.0' in metrics
    assert 'bitedge_errors_total{reason="rate_limit"} 2.0' in metrics


def test_keys_are_in_the_openapi_document_when_they_are_needed(closed: TestClient, client: TestClient) -> None:
    document = closed.get("/openapi.json").json()
    assert document["paths"]["/v1/classify"]["post"]["security"] == [{"bearer": []}, {"header": []}]
    assert "security" not in document["paths"]["/healthz"]["get"]
    assert "401" in document["paths"]["/v1/classify"]["post"]["responses"]
    assert "security" not in client.get("/openapi.json").json()["paths"]["/v1/classify"]["post"]


def test_a_fault_of_ours_is_json_with_the_request_id(
    make_client: Callable[..., TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    from bitedge.serve.models.registry import ModelStore

    client = make_client()

    def broken(*_: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(ModelStore, "get", broken)
    for path in ("/v1/classify", "/v1/classify?top_k=1"):
        answer = client.post(path, content=png(), headers={"x-request-id": "abc"})
        assert answer.status_code == 500
        assert answer.json() == {"error": "internal error (RuntimeError); request id abc"}
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert 'bitedge_errors_total{reason="internal"} 2.0' in client.get("/metrics").text
