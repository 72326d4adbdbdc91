"""Workers that are killed lose no request: another one answers it, on the same connection, without any retry."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest
from tests.serve.clients import HEALTH, BareClient, descriptors, post
from tests.serve.load import more_answers, under_load, wait_until
from tests.serve.pictures import png
from tests.serve.running_server import RunningServer

Start = Callable[..., RunningServer]
Connect = Callable[[RunningServer], BareClient]

SLOW = ("--batch-delay-ms", "1000", "--max-batch", "4096")  # time to kill whoever has the request


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Clients that are closed after the test."""
    clients: list[BareClient] = []

    def make(server: RunningServer) -> BareClient:
        clients.append(BareClient(server))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def kill(server: RunningServer, victim: int | None) -> None:
    """SIGKILL, and wait until another serves in its place."""
    assert victim in server.workers()
    ready = len(server.events("model loaded"))
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: len(server.workers()) == 2 and victim not in server.workers(), "a new worker")
    wait_until(lambda: len(server.events("model loaded")) >= ready + 3, "its models")


def busiest(server: RunningServer) -> int:
    """The worker that served most of late."""
    late: list[int] = [
        json.loads(line)["pid"] for line in server.log().splitlines()[-50:] if '"message": "request"' in line
    ]
    return Counter(late).most_common(1)[0][0]


def both_serve(server: RunningServer) -> None:
    def try_two() -> bool:
        clients = [BareClient(server) for _ in range(2)]
        for client in clients:
            client.send(HEALTH)
        holders = {client.holder() for client in clients}
        for client in clients:
            client.close()
        return len(holders) == 2

    wait_until(try_two, "work for both workers")


@pytest.mark.parametrize("keep_alive", [True, False], ids=["kept", "new"])
@pytest.mark.parametrize("place", ["10000", "0"], ids=["loop", "threads"])
def test_under_load_no_request_is_lost(start_server: Start, keep_alive: bool, place: str) -> None:
    server = start_server("--workers", "2", "--in-place-us", place)
    expected = httpx2.post(f"{server.url}/v1/classify", content=png()).json()["predictions"]
    with under_load(f"{server.url}/v1/classify", png(), clients=6, keep_alive=keep_alive) as load:
        for _ in range(3):
            more_answers(load, 100)
            kill(server, busiest(server))
        more_answers(load, 100)
    assert load.lost == []
    assert set(load.statuses) == {200}
    assert all(answer["predictions"] == expected for answer in load.answers), "and no answer is wrong"
    assert server.metric("bitedge_pending_images") == 0, "the dead workers' gauges are gone"
    assert server.stop() == 0


def test_all_workers_at_once_lose_nothing_that_they_have_in_hand(start_server: Start, connect: Connect) -> None:
    server = start_server("--workers", "2", *SLOW)
    both_serve(server)
    clients = [connect(server) for _ in range(20)]
    for client in clients:
        client.send(post(png()))
    victims = {client.holder() for client in clients}
    assert victims == set(server.workers()), "both have some"
    for victim in victims:
        assert victim is not None
        os.kill(victim, signal.SIGKILL)
    late = connect(server)  # nobody is there to accept it
    late.sock.sendall(post(png()))
    answers = [client.answer() for client in (*clients, late)]
    assert {status for status, _, _ in answers} == {200}
    assert len({str(body["predictions"]) for _, _, body in answers}) == 1
    for client in clients:
        client.send(HEALTH)
        assert client.answer()[2] == {"live": True, "ready": True}, "and not a second answer to the first request"


def test_a_large_request_of_which_half_was_received(start_server: Start, connect: Connect) -> None:
    server = start_server("--workers", "2")
    both_serve(server)
    client = connect(server)
    request = post(png() + bytes(6 << 20))  # what comes after the end of a PNG does not matter
    half = len(request) // 2
    client.send(request[:half])
    kill(server, client.holder())
    client.send(request[half:])
    assert client.answer()[0] == 200
    wait_until(lambda: journal_bytes(server) < 1 << 18, "memory given back")


def journal_bytes(server: RunningServer) -> int:
    """The memory that all journals take."""
    folder = Path(f"/proc/{server.process.pid}/fd")
    journals = [link for link in folder.iterdir() if "bitedge-journal" in str(link.readlink())]
    assert len(journals) == 2, "the client's and a spare one"
    return sum(link.stat().st_blocks * 512 for link in journals)


def test_of_pipelined_requests_only_those_without_an_answer_are_done_again(
    start_server: Start, connect: Connect
) -> None:
    server = start_server("--workers", "2", *SLOW)
    both_serve(server)
    client = connect(server)
    client.send(HEALTH + HEALTH + post(png()) + HEALTH)
    assert [client.answer()[2]["live"] for _ in range(2)] == [True, True]
    kill(server, client.holder())
    assert client.answer()[2]["predictions"]
    assert client.answer()[2]["live"]
    client.sock.sendall(HEALTH.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    assert client.answer()[1]["connection"] == "close"
    assert client.rest() == b"", "nothing was answered twice"


def test_an_answer_of_which_half_is_out_ends_its_connection(start_server: Start, connect: Connect) -> None:
    server = start_server("--workers", "2")
    both_serve(server)
    one = httpx2.get(f"{server.url}/openapi.json")
    client = connect(server)
    client.send(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 1000)  # and no answer is read
    time.sleep(1.0)
    kill(server, client.holder())
    status, _, body = client.answer()
    assert (status, body) == (200, one.json())
    rest = client.rest()
    answers = rest.split(b"HTTP/1.1 200 OK\r\n")[1:]
    assert len(answers) < 999
    assert len(set(map(len, answers[:-1]))) == 1, "all are whole but the last"
    assert len(answers[-1]) < len(answers[0])


def test_a_client_that_was_invited_to_go_on(start_server: Start, connect: Connect) -> None:
    server = start_server("--workers", "2")
    both_serve(server)
    client = connect(server)
    head, _, body = post(png()).partition(b"\r\n\r\n")
    client.send(head + b"\r\nExpect: 100-continue\r\n\r\n")
    invitation = b"HTTP/1.1 100 Continue\r\n\r\n"
    assert client.sock.recv(1000) == invitation
    kill(server, client.holder())
    assert client.sock.recv(1000) == invitation, "HTTP allows several"
    client.send(body)
    assert client.answer()[0] == 200


def test_an_idle_connection_outlives_its_workers(start_server: Start, connect: Connect) -> None:
    server = start_server("--workers", "2")
    both_serve(server)
    client = connect(server)
    for answered in (True, True, False, False, False, False):
        if answered:
            client.send(post(png()))
            assert client.answer()[0] == 200
        wait_until(lambda: client.holder() is not None, "somebody who has it")
        kill(server, client.holder())
    client.send(post(png()))
    assert client.answer()[0] == 200


def test_a_request_that_kills_workers_is_refused_and_harms_no_other(start_server: Start, connect: Connect) -> None:
    """Whoever has a certain request is killed. It waits for its body, so that it is there to be blamed."""
    server = start_server("--workers", "2", "--body-seconds", "600")
    both_serve(server)
    suspects = [connect(server) for _ in range(2)]
    idle = connect(server)
    request = post(png())
    idle.send(HEALTH)
    assert idle.answer()[0] == 200
    for client in suspects:
        client.send(request[:-10])
    for _ in range(2):
        wait_until(lambda: all(client.holder() for client in suspects), "workers for both")
        time.sleep(0.3)  # so that they have been read
        for victim in server.workers():
            os.kill(victim, signal.SIGKILL)
        wait_until(lambda: not any(client.holder() for client in suspects), "the end of the workers")
    wait_until(lambda: any(client.holder() for client in suspects), "a worker for one of them")
    time.sleep(0.3)
    (guilty,) = [client for client in suspects if client.holder()]
    (innocent,) = [client for client in suspects if client is not guilty]
    kill(server, guilty.holder())
    status, headers, body = guilty.answer()
    assert (status, headers["retry-after"], headers["connection"]) == (503, "1", "close")
    assert "3 workers died" in body["error"]
    assert guilty.rest() == b""
    innocent.send(request[-10:])
    assert innocent.answer()[0] == 200
    idle.send(HEALTH)
    assert idle.answer()[0] == 200


def test_no_descriptor_stays_behind(start_server: Start, connect: Connect) -> None:
    server = start_server("--workers", "2", "--body-seconds", "0.5")
    both_serve(server)

    def count() -> list[int]:
        """Sockets and journals; the metrics open files of their own."""
        links = [descriptors(pid) for pid in (server.process.pid, *server.workers())]
        return sorted(sum(link.startswith(("socket:", "/memfd:")) for link in some) for some in links)

    wait_until(lambda: sum("journal" in link for link in descriptors(server.process.pid)) == 1, "an idle service")
    before = count()
    for _ in range(3):
        clients = []
        for _ in range(20):
            clients.append(connect(server))
            clients[-1].send(HEALTH)
        silent = [connect(server) for _ in range(20)]
        kill(server, clients[0].holder())
        for client in clients:
            assert client.answer()[0] == 200
            client.close()
        for client in silent:
            assert client.rest() == b"", "let go"
    wait_until(lambda: count() == before, f"{before} descriptors again")


def test_a_worker_that_is_stuck_gets_no_more_connections(start_server: Start, connect: Connect) -> None:
    server = start_server("--workers", "2")
    both_serve(server)
    stuck = server.workers()[0]
    os.kill(stuck, signal.SIGSTOP)
    clients = [connect(server) for _ in range(200)]
    for client in clients:
        client.sock.sendall(HEALTH)
    for client in clients[100:]:
        assert client.answer()[0] == 200
    os.kill(stuck, signal.SIGKILL)
    for client in clients[:100]:
        assert client.answer()[0] == 200, "those that were given to it go to others after all"


def test_where_the_kernel_does_not_count_workers_share_a_socket(start_server: Start, tmp_path: Path) -> None:
    patch = "import bitedge.serve.tcpcount\nbitedge.serve.tcpcount.kernel_counts = lambda: False\n"
    (tmp_path / "sitecustomize.py").write_text(patch)
    server = start_server("--workers", "2", env={"PYTHONPATH": str(tmp_path)})
    both_serve(server)
    with under_load(f"{server.url}/v1/classify", png()) as load:
        more_answers(load, 50)
        os.kill(server.workers()[0], signal.SIGTERM)
        more_answers(load, 50)
    assert load.lost == []
    assert set(load.statuses) == {200}
    assert not any("journal" in link for link in descriptors(server.process.pid))
    assert server.stop() == 0
