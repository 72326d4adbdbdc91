"""Small requests that come in one piece are answered without a task; nobody can tell, except by the time it takes."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.serve.pictures import encoded, pixels, png
from tests.serve.running_server import RunningServer

from bitedge.serve.security.keys import new_key

Start = Callable[..., RunningServer]
LOOP = ("--in-place-us", "10000")  # a busy machine makes the network look slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, networks: tuple[Path, Path]) -> Iterator[RunningServer]:
    running = RunningServer(networks[0], *LOOP)
    yield running
    running.close()


def request(body: bytes, *headers: str, path: str = "/v1/classify", version: str = "1.1") -> bytes:
    lines = [f"POST {path} HTTP/{version}", "Host: x", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def exchange(server: RunningServer, *pieces: bytes, answers: int = 1) -> list[tuple[int, dict[str, str], Any]]:
    """Send bytes piece by piece and read so many answers: status, headers, JSON."""
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(0.05 if len(pieces) > 1 else 0)
        file = connection.makefile("rb")
        return [read_answer(file) for _ in range(answers)]


def read_answer(file: Any) -> tuple[int, dict[str, str], Any]:
    status = int(file.readline().split()[1])
    headers: dict[str, str] = {}
    while line := file.readline().strip().decode():
        name, _, value = line.partition(": ")
        assert name not in headers, f"{name} twice"
        headers[name] = value
    return status, headers, json.loads(file.read(int(headers["content-length"])))


def test_one_piece_or_several_make_no_difference(server: RunningServer) -> None:
    whole = request(png(3), "Content-Type: image/png", "X-Request-Id: a-1")
    first = exchange(server, whole)[0]
    for pieces in ((whole[:20], whole[20:]), (whole[:-1], whole[-1:]), tuple(whole.partition(b"\r\n\r\n"))):
        other = exchange(server, *pieces)[0]
        assert (other[0], other[2]["predictions"]) == (first[0], first[2]["predictions"])
        assert set(other[1]) == set(first[1])
        assert other[1]["x-request-id"] == first[1]["x-request-id"] == "a-1"


def test_pipelined_requests_are_answered_in_their_order(server: RunningServer) -> None:
    images = [png(seed) for seed in range(5)]
    alone = [exchange(server, request(image))[0][2]["predictions"] for image in images]
    assert len({str(rows) for rows in alone}) == 5
    together = exchange(server, b"".join(map(request, images)), answers=5)
    assert [answer[2]["predictions"] for answer in together] == alone
    mixed = exchange(
        server, request(images[0]) + b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" + request(images[1]), answers=3
    )
    assert [mixed[0][2]["predictions"], mixed[2][2]["predictions"]] == alone[:2]


@pytest.mark.parametrize("option", [("Connection: close",), ()], ids=["asked", "http-1.0"])
def test_a_connection_that_is_not_kept_is_closed(server: RunningServer, option: tuple[str, ...]) -> None:
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(request(png(), *option, version="1.1" if option else "1.0"))
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"connection: close" in answer


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (png()[:60] + b"\xff" + png()[61:], (), 400),
        (png()[:100], (), 400),
        (b"", (), 400),
        (b"no image", (), 415),
        (png(), ("Content-Type: text/plain",), 415),
        (png(), ("Content-Encoding: gzip",), 415),
        (png(), ("X-Timeout-Ms: soon",), 400),
        (png(), ("X-Timeout-Ms: 20000",), 200),
        (png(), ("Content-Type: application/octet-stream",), 200),
        (png(), ("Content-Type: image/png; charset=x",), 200),
        (encoded(pixels(), "JPEG"), (), 200),
    ],
)
def test_errors_and_odd_requests(server: RunningServer, body: bytes, headers: tuple[str, ...], status: int) -> None:
    answer = exchange(server, request(body, *headers))[0]
    assert answer[0] == status
    assert "predictions" in answer[2] if status == 200 else list(answer[2]) == ["error"]
    assert {"content-security-policy", "x-content-type-options", "x-request-id"} <= set(answer[1])


def test_keys_and_rates_hold(start_server: Start, tmp_path: Path) -> None:
    secret, line = new_key("camera")
    (tmp_path / "keys").write_text(line)
    limits = ("--rate-limit", "0.001", "--rate-burst", "3")
    server = start_server(*LOOP, "--keys-file", str(tmp_path / "keys"), *limits)
    wrong = exchange(server, request(png()))[0], exchange(server, request(png(), "X-API-Key: bad"))[0]
    assert [answer[0] for answer in wrong] == [401, 401]
    answers = [exchange(server, request(png(), f"Authorization: Bearer {secret}"))[0] for _ in range(4)]
    assert [answer[0] for answer in answers] == [200, 200, 200, 429]
    assert int(answers[3][1]["retry-after"]) >= 1
    callers = [
        (line["status"], line.get("caller")) for line in server.events("request") if line["status"] in (200, 429)
    ]
    assert [caller for status, caller in callers if status == 200][-3:] == ["camera"] * 3


def test_every_answer_is_counted_and_logged(start_server: Start) -> None:
    server = start_server(*LOOP)
    exchange(server, *[request(png(seed)) for seed in range(6)], answers=6)
    exchange(server, request(png()[:60] + b"\xff" + png()[61:]))
    text = httpx2.get(f"{server.url}/metrics").text
    counts = re.findall(r'bitedge_requests_total\{route="/v1/classify",status="(\d+)"\} (\S+)', text)
    assert dict(counts) == {"200": "6.0", "400": "1.0"}
    assert 'bitedge_errors_total{reason="bad_image"} 1.0' in text
    assert len([line for line in server.events("request") if line["path"] == "/v1/classify"]) == 7
