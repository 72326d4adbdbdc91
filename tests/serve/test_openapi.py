"""The OpenAPI document is complete and true: schemathesis tries every operation, with all of its checks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
from starlette.testclient import TestClient
from tests.serve.running_server import RunningServer

from bitedge.serve.security.keys import new_key

HERE = Path(__file__).parent


def try_everything(server: RunningServer, folder: Path, *options: str, settings: str = "", key: str = "") -> None:
    document = folder / "openapi.json"
    document.write_bytes(httpx2.get(f"{server.url}/openapi.json", headers={"x-api-key": key}).content)
    config = folder / "schemathesis.toml"
    config.write_text((HERE / "schemathesis.toml").read_text() + settings)
    command = [str(Path(sys.executable).with_name("schemathesis")), "--config-file", str(config)]
    command += ["run", str(document), "--url", server.url, "--checks", "all", "--seed", "1", "--no-color", *options]
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": str(HERE / "schemathesis_hooks.py")}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=550)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert "Tested: 25" in done.stdout
    assert not [line for line in server.events("request") if line["status"] == 500]


@pytest.mark.slow
def test_schemathesis_finds_nothing(start_server: Callable[..., RunningServer], tmp_path: Path) -> None:
    try_everything(start_server("--admin", "open"), tmp_path, "--max-examples", "25")


@pytest.mark.slow
def test_schemathesis_finds_nothing_behind_keys(start_server: Callable[..., RunningServer], tmp_path: Path) -> None:
    secret, line = new_key("robot", ("infer", "metrics", "admin"))
    (tmp_path / "keys").write_text(line)
    server = start_server("--keys-file", str(tmp_path / "keys"))
    settings = f'[auth.openapi]\nheader = {{ api_key = "{secret}" }}\nbearer = {{ bearer = "{secret}" }}\n'
    try_everything(server, tmp_path, "--max-examples", "5", settings=settings, key=secret)


def test_every_route_and_every_error_is_described(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    operations = {
        (method, path): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert len(operations) == 25
    assert "HTTPValidationError" not in document["components"]["schemas"]
    for (method, path), operation in operations.items():
        assert operation["summary"], path
        assert "422" not in operation["responses"]
        for status, answer in operation["responses"].items():
            if status.startswith("4"):
                assert answer["content"]["application/json"]["schema"]["$ref"].endswith("/Error"), (
                    method,
                    path,
                    status,
                )
    classify = operations["post", "/v1/classify"]
    assert set(classify["requestBody"]["content"]) == {
        "image/jpeg",
        "image/png",
        "image/webp",
        "image/bmp",
        "multipart/form-data",
        "application/json",
    }
    assert "Retry-After" in classify["responses"]["503"]["headers"]
