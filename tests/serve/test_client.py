"""The Python client, against a running server and against one that sheds."""

from __future__ import annotations

import asyncio
import http.server
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.serve.pictures import png
from tests.serve.running_server import RunningServer

from bitedge.serve.client import AsyncClient, Client, ClientError


def test_classify_batch_and_models(shared_server: RunningServer, tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(png())
    with Client(shared_server.url) as client:
        result = client.classify(png(), top_k=3)
        assert len(result["predictions"]) == 3
        assert client.classify(tmp_path / "x.png", top_k=3)["predictions"] == result["predictions"]
        batch = client.classify_batch([png(), b"no image"], model="second")["results"]
        assert batch[0]["predictions"]
        assert batch[1]["error"]
        assert {model["name"] for model in client.models()["models"]} == {"first", "second"}
        with pytest.raises(ClientError, match="there is no model nobody") as caught:
            client.classify(png(), model="nobody")
        assert caught.value.status == 404

    async def many() -> list[dict[str, Any]]:
        async with AsyncClient(shared_server.url) as client:
            assert len((await client.models())["models"]) == 3
            assert len((await client.classify_batch([png(), png()]))["results"]) == 2
            return await asyncio.gather(*(client.classify(png(), top_k=3) for _ in range(8)))

    assert [answer["predictions"] for answer in asyncio.run(many())] == [result["predictions"]] * 8


class Shedding(http.server.BaseHTTPRequestHandler):
    """Closes the first connection, sheds the second request, answers the third."""

    seen = 0

    def do_POST(self) -> None:
        type(self).seen += 1
        self.rfile.read(int(self.headers["content-length"]))
        if self.seen == 1:
            self.close_connection = True
            return
        body = b'{"error": "busy"}' if self.seen == 2 else b'{"predictions": []}'
        self.send_response(503 if self.seen == 2 else 200)
        if self.seen == 2:
            self.send_header("retry-after", "1")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def shedding() -> Iterator[str]:
    Shedding.seen = 0
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Shedding)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_retries_wait_as_long_as_the_server_asks(shedding: str) -> None:
    begun = time.monotonic()
    with Client(shedding) as client:
        assert client.classify(b"x") == {"predictions": []}
    assert Shedding.seen == 3
    assert time.monotonic() - begun >= 1

    async def again() -> dict[str, Any]:
        Shedding.seen = 0
        async with AsyncClient(shedding) as client:
            return await client.classify(b"x")

    assert asyncio.run(again()) == {"predictions": []}


def test_retries_end(shedding: str) -> None:
    Shedding.seen = 1
    with Client(shedding, retries=0) as client, pytest.raises(ClientError, match="busy"):
        client.classify(b"x")
