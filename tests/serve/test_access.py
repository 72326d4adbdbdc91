"""Who may do what: API keys, scopes, rate limits, other sites' pages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
from starlette.testclient import TestClient
from tests.serve.pictures import png
from tests.serve.running_server import RunningServer

from bitedge.serve.security.keys import new_key

OPEN = ("/", "/docs", "/healthz", "/readyz", "/v2/health/live", "/v2/health/ready", "/static/app.js")
CLOSED = ("/openapi.json", "/v1/models", "/v2", "/v2/models/first", "/v2/models/stats", "/metrics")
Keys = tuple[Path, dict[str, str]]


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    scopes = {"user": ("infer",), "boss": ("infer", "metrics", "admin")}
    made = {name: new_key(name, allowed) for name, allowed in scopes.items()}
    path = tmp_path / "keys"
    path.write_text("\n".join(line for _, line in made.values()))
    return path, {name: secret for name, (secret, _) in made.items()}


@pytest.fixture
def closed(make_client: Callable[..., TestClient], keys: Keys) -> TestClient:
    return make_client(keys_file=keys[0])


def test_without_keys_all_but_loading_is_open(client: TestClient) -> None:
    for path in OPEN + CLOSED:
        assert client.get(path).status_code == 200, path
    answer = client.post("/v2/repository/models/first/load")
    assert (answer.status_code, "--admin open" in answer.json()["error"]) == (403, True)


def test_with_keys_only_health_and_the_files_of_the_page_are_open(closed: TestClient) -> None:
    """Defect 2: with keys and the default settings, /metrics answered without one."""
    for path in OPEN:
        assert closed.get(path).status_code == 200, path
    for path in CLOSED:
        answer = closed.get(path)
        assert answer.status_code == 401, path
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert closed.post("/v1/classify", content=png(), headers={"x-api-key": "be_wrong"}).status_code == 401


@pytest.mark.parametrize("style", ["Authorization", "X-API-Key"])
def test_a_key_opens_its_scopes(closed: TestClient, keys: Keys, style: str) -> None:
    def header(name: str) -> dict[str, str]:
        return {style: f"Bearer {keys[1][name]}" if style == "Authorization" else keys[1][name]}

    assert closed.post("/v1/classify", content=png(), headers=header("user")).status_code == 200
    assert closed.get("/metrics", headers=header("user")).status_code == 403
    assert closed.post("/v2/repository/models/first/load", headers=header("user")).status_code == 403
    assert closed.get("/metrics", headers=header("boss")).status_code == 200
    assert closed.post("/v2/repository/models/first/unload", headers=header("boss")).status_code == 200
    assert closed.get("/nowhere", headers=header("user")).status_code == 404


def test_no_spelling_of_a_path_gets_around_the_key(start_server: Callable[..., RunningServer], keys: Keys) -> None:
    """Defect 1: the path was compared as a string here, and matched as a regular expression there."""
    server = start_server("--keys-file", str(keys[0]))
    for path in ("/metrics%0A", "/metrics%0a", "//metrics", "/metrics/", "/METRICS"):
        for headers in ({}, {"x-api-key": keys[1]["user"]}):
            assert httpx2.get(server.url + path, headers=headers).status_code in (401, 403, 404), path


def test_keys_are_rotated_without_a_restart(start_server: Callable[..., RunningServer], keys: Keys) -> None:
    server = start_server("--keys-file", str(keys[0]), "--require-auth")
    secret, line = new_key("next")
    models = f"{server.url}/v1/models"
    assert httpx2.get(models, headers={"x-api-key": secret}).status_code == 401
    keys[0].write_text(line)
    server.wait_for(lambda: httpx2.get(models, headers={"x-api-key": secret}).status_code == 200, "rotated")
    assert httpx2.get(models, headers={"x-api-key": keys[1]["user"]}).status_code == 401


def test_metrics_and_the_page_can_be_switched_off(make_client: Callable[..., TestClient]) -> None:
    client = make_client(metrics="off", page=False)
    assert client.get("/metrics").status_code == 403
    assert client.get("/").status_code == 404


def test_no_web_page_can_unload_a_model(make_client: Callable[..., TestClient]) -> None:
    """A page whose name was rebound to this address has the same origin and host, so no origin is trusted."""
    client = make_client(admin="open")
    path = "/v2/repository/models/first/unload"
    for origin in ("https://elsewhere.example", "null", "http://testserver"):
        assert client.post(path, headers={"origin": origin}).status_code == 403
    assert client.post(path).status_code == 200


def test_a_caller_above_its_rate_gets_429(make_client: Callable[..., TestClient]) -> None:
    client = make_client(rate_limit=0.01, rate_burst=3)
    answers = [client.post("/v1/classify", content=png()) for _ in range(5)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 100
    assert client.get("/healthz").status_code == 200
    metrics = client.get("/metrics").text
    assert 'bitedge_shed_total{reason="rate_limit"} 2.0' in metrics
    assert 'bitedge_errors_total{reason="rate_limit"} 2.0' in metrics


def test_callers_behind_a_proxy_have_their_own_rates(start_server: Callable[..., RunningServer]) -> None:
    """Defect 17: without forwarded headers, all callers behind an ingress shared one bucket."""
    limits = ("--rate-limit", "0.01", "--rate-burst", "2", "--workers", "2")
    server = start_server(*limits, "--forwarded-allow-ips", "127.0.0.1")

    def statuses(address: str) -> list[int]:
        headers = {"x-forwarded-for": address}
        return [httpx2.get(f"{server.url}/v1/models", headers=headers).status_code for _ in range(3)]

    assert statuses("192.0.2.1") == [200, 200, 429], "over two workers, each on a connection of its own"
    assert statuses("192.0.2.2") == [200, 200, 429]
    distrustful = start_server(*limits)
    seen = [httpx2.get(f"{distrustful.url}/v1/models", headers={"x-forwarded-for": str(i)}) for i in range(3)]
    assert [answer.status_code for answer in seen] == [200, 200, 429]


def test_keys_are_in_the_openapi_document_when_they_are_needed(
    closed: TestClient, client: TestClient, keys: Keys
) -> None:
    document = closed.get("/openapi.json", headers={"x-api-key": keys[1]["user"]}).json()
    assert document["paths"]["/v1/classify"]["post"]["security"] == [{"bearer": []}, {"header": []}]
    assert "security" not in document["paths"]["/healthz"]["get"]
    assert "4XX" in document["paths"]["/v1/classify"]["post"]["responses"]
    assert "security" not in client.get("/openapi.json").json()["paths"]["/v1/classify"]["post"]


def test_a_fault_of_ours_is_json_with_the_request_id(
    make_client: Callable[..., TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    from bitedge.serve.models.registry import Registry

    client = make_client()

    def broken(*_: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(Registry, "get", broken)
    for path in ("/v1/classify", "/v1/classify?top_k=1"):
        answer = client.post(path, content=png(), headers={"x-request-id": "abc"})
        assert answer.status_code == 500
        assert answer.json() == {"error": "internal error (RuntimeError); request id abc"}
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert 'bitedge_errors_total{reason="internal"} 2.0' in client.get("/metrics").text
