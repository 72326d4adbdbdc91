"""One write for every answer, and no answer that stays behind."""

from __future__ import annotations

import socket
from unittest.mock import Mock

import pytest
from tests.serve.pictures import png
from tests.serve.running_server import RunningServer

from bitedge.serve.protocol import HeldTransport
from bitedge.serve.security.headers import SECURITY_BLOCK, SECURITY_HEADERS

STATUS, REST = b"HTTP/1.1 200 OK\r\n", b"content-length: 5\r\n\r\n"
HEAD = STATUS + REST
SENT = STATUS + SECURITY_BLOCK + REST


@pytest.fixture
def real() -> Mock:
    """The transport underneath: it writes down what is written."""
    transport = Mock()
    transport.is_closing.return_value = False
    return transport


def written(real: Mock) -> list[bytes]:
    return [call.args[0] for call in real.write.call_args_list]


def test_head_and_body_go_together_and_every_further_part_at_once(real: Mock) -> None:
    held = HeldTransport(real)
    for _ in range(2):
        for part in (HEAD, b"hello", b"HTTP/1.1 200 OK is text here"):
            held.write(part)
        held.end()
    assert written(real) == [SENT + b"hello", b"HTTP/1.1 200 OK is text here"] * 2


@pytest.mark.parametrize("ending", ["end", "close"])
def test_a_head_without_a_body_is_not_kept_back(real: Mock, ending: str) -> None:
    held = HeldTransport(real)
    held.write(HEAD)
    assert written(real) == []
    getattr(held, ending)()
    assert written(real) == [SENT]
    assert real.close.called == (ending == "close")


def test_the_invitation_to_go_on_is_sent_at_once(real: Mock) -> None:
    held = HeldTransport(real)
    held.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert written(real) == [b"HTTP/1.1 100 Continue\r\n\r\n"]
    held.write(HEAD)
    held.write(b"hello")
    assert written(real)[1:] == [SENT + b"hello"]


def test_a_lost_connection_gets_nothing_more(real: Mock) -> None:
    held = HeldTransport(real)
    held.write(HEAD)
    real.is_closing.return_value = True
    held.close()
    assert written(real) == []


def exchange(server: RunningServer, request: bytes) -> bytes:
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_a_client_that_waits_to_be_invited_is_answered(shared_server: RunningServer) -> None:
    host, port = shared_server.address.split(":")
    body = png()
    head = f"POST /v1/classify HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(head.encode())
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"}}"), "head and body in one piece"


def test_answers_without_a_body_and_answers_on_one_connection(shared_server: RunningServer) -> None:
    one = b"HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    last = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    answer = exchange(shared_server, one + last)
    assert answer.count(b"HTTP/1.1 ") == 2
    assert answer.startswith(b"HTTP/1.1 405")
    assert answer.endswith(b'{"live": true, "ready": true}')


def test_what_is_no_http_is_refused_and_even_then_the_headers_are_there(shared_server: RunningServer) -> None:
    answer = exchange(shared_server, b"\x16\x03\x01 hello\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400")
    assert SECURITY_BLOCK in answer


@pytest.mark.parametrize("path", ["/", "/healthz", "/v1/models", "/nowhere"])
def test_every_answer_has_each_security_header_once(shared_server: RunningServer, path: str) -> None:
    answer = exchange(shared_server, f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    head = answer.partition(b"\r\n\r\n")[0].lower()
    for name, value in SECURITY_HEADERS:
        assert head.count(b"\r\n" + name + b": ") == 1, name
        assert b"\r\n" + name + b": " + value.lower() in head
