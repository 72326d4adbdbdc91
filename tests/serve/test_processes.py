"""Servers as processes: draining, several workers, and models exchanged under load."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
from tests.serve.load import more_answers, under_load, wait_until
from tests.serve.pictures import png
from tests.serve.running_server import RunningServer

Start = Callable[..., RunningServer]


# Where small images run: on the event loop, or, as larger ones always do, in threads.
PLACES = pytest.mark.parametrize("place", [("--in-place-us", "10000"), ("--in-place-us", "0")], ids=["loop", "threads"])


@PLACES
@pytest.mark.parametrize("workers", ["1", "2"])
def test_sigterm_finishes_what_was_accepted_and_exits_0(
    start_server: Start, workers: str, place: tuple[str, str]
) -> None:
    server = start_server("--workers", workers, *place)
    with under_load(f"{server.url}/v1/classify", png()) as load:
        more_answers(load, 50)
        load.stopping.set()  # from now on a refused connection is no loss; a broken answer still is
        assert server.stop() == 0
    assert load.lost == []
    assert set(load.statuses) == {200}
    assert server.events("draining")


def test_readiness_goes_first_while_requests_are_still_taken(start_server: Start) -> None:
    server = start_server("--drain-delay-seconds", "2")
    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: httpx2.get(f"{server.url}/readyz").status_code == 503, "not ready")
    answer = httpx2.post(f"{server.url}/v1/classify", content=png())
    assert (answer.status_code, answer.headers["connection"]) == (200, "close")
    assert httpx2.get(f"{server.url}/healthz").status_code == 200
    assert server.process.wait(timeout=30) == 0


def test_sigint_ends_it_too(start_server: Start) -> None:
    assert start_server().stop(signal.SIGINT) == 0


def test_workers_count_together(start_server: Start) -> None:
    server = start_server("--workers", "2")
    total = 0

    def both_served() -> bool:
        nonlocal total
        with under_load(f"{server.url}/v1/classify", png(), clients=8) as load:
            more_answers(load, 100)
        total += load.total
        return len({line["pid"] for line in server.events("request") if line["path"] == "/v1/classify"}) == 2

    wait_until(both_served, "work for both workers")
    assert server.metric('bitedge_requests_total{route="/v1/classify",status="200"}') == total
    assert server.metric("bitedge_images_total") == total
    assert server.metric('bitedge_batch_size_sum{model="first",version="2"}') == total
    stats = httpx2.get(f"{server.url}/v2/models/first/stats").json()["model_stats"]
    assert [row["inference_count"] for row in stats] == [total]


def test_load_and_unload_hold_for_every_worker(start_server: Start) -> None:
    server = start_server("--workers", "2", "--admin", "open")

    def statuses() -> set[int]:
        return {httpx2.get(f"{server.url}/v2/models/first/ready").status_code for _ in range(20)}

    order = f"{server.url}/v2/repository/models/first"
    assert httpx2.post(f"{order}/unload", timeout=60).status_code == 200
    assert statuses() == {404}
    victim = server.workers()[0]
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: len(server.workers()) == 2 and victim not in server.workers(), "a new worker")
    wait_until(lambda: len(server.events("model loaded")) >= 3, "its models")
    assert statuses() == {404}, "the new worker knows of the order"
    assert httpx2.post(f"{order}/load", timeout=60).status_code == 200
    assert statuses() == {200}


def test_a_worker_that_is_asked_to_end_loses_nothing_and_is_replaced(start_server: Start) -> None:
    server = start_server("--workers", "2")
    with under_load(f"{server.url}/v1/classify", png()) as load:
        more_answers(load, 50)
        victim = server.workers()[0]
        os.kill(victim, signal.SIGTERM)
        wait_until(lambda: len(server.workers()) == 2 and victim not in server.workers(), "a new worker")
        more_answers(load, 50)
    assert load.lost == []
    assert set(load.statuses) == {200}


@PLACES
def test_models_are_replaced_and_bad_ones_refused_under_load(
    start_server: Start, repository: Path, networks: tuple[Path, Path], place: tuple[str, str]
) -> None:
    server = start_server("--poll-seconds", "0.1", *place)
    best = [httpx2.post(f"{server.url}/v1/classify?version={v}", content=png()).json()["predictions"] for v in (1, 2)]
    assert best[0] != best[1]

    def reloads(kind: str) -> int:
        return len(server.events(f"model {kind}"))

    with under_load(f"{server.url}/v1/classify", png()) as load:
        for round_number in range(1, 4):
            new = repository / "first" / "2" / "new"
            shutil.copy(networks[round_number % 2 == 0], new)
            new.replace(repository / "first" / "2" / "model.gguf")
            wait_until(lambda: reloads("replaced") >= round_number, "a swap")  # noqa: B023
            more_answers(load, 20)
        bad = repository / "first" / "3"
        bad.mkdir()
        (bad / "model.gguf").write_bytes(networks[0].read_bytes()[:-64])
        wait_until(lambda: reloads("refused") >= 1, "a refusal")
        more_answers(load, 20)
        with (repository / "first" / "2" / "model.gguf").open("r+b") as file:  # overwritten in place, half way
            file.truncate(5000)
        wait_until(lambda: reloads("refused") >= 2, "another refusal")
        more_answers(load, 20)
    assert load.lost == []
    assert set(load.statuses) == {200}
    assert {answer["version"] for answer in load.answers} == {"2"}
    assert {str(answer["predictions"]) for answer in load.answers} == {str(rows) for rows in best}
    cards = {card["version"]: card for card in httpx2.get(f"{server.url}/v1/models").json()["models"][:3]}
    assert cards["2"]["state"] == "READY"
    assert cards["2"]["reason"]
    assert cards["3"]["state"] == "UNAVAILABLE"


def test_a_client_that_leaves_costs_no_inference(start_server: Start) -> None:
    server = start_server("--threads", "1", "--batch-delay-ms", "600", "--max-batch", "4096")
    host, port = server.address.split(":")
    body = png()
    head = f"POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    patient: list[httpx2.Response] = []
    waiting = threading.Thread(target=lambda: patient.append(httpx2.post(f"{server.url}/v1/classify", content=body)))
    waiting.start()
    for _ in range(10):
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(head + body)
            time.sleep(0.03)
    waiting.join()
    assert patient[0].status_code == 200
    wait_until(lambda: server.metric("bitedge_pending_images") == 0, "an empty queue")
    left = server.metric('bitedge_dropped_images_total{reason="disconnected"}')
    assert left >= 8
    assert server.metric("bitedge_images_total") == 11 - left


def test_a_slow_body_is_cut_off(start_server: Start) -> None:
    server = start_server("--body-seconds", "0.3")
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(b"POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc")
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"did not arrive within" in answer


def test_a_client_that_never_speaks_is_let_go_and_delays_no_shutdown(start_server: Start) -> None:
    server = start_server("--body-seconds", "0.3", "--drain-seconds", "3000")
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(b"POST /v1/cla")
        assert connection.recv(100) == b"", "closed, without an answer"
    with socket.create_connection((host, int(port))):
        assert server.stop() == 0, "and not killed after a minute"


def test_overload_is_answered_with_200_or_a_time_to_come_back(start_server: Start) -> None:
    server = start_server("--queue", "4", "--threads", "1", "--batch-delay-ms", "20", "--max-batch", "2")
    answers: list[httpx2.Response] = []

    def hammer() -> None:
        with httpx2.Client(timeout=60) as client:
            for _ in range(10):
                answers.append(client.post(f"{server.url}/v1/classify", content=png()))

    threads = [threading.Thread(target=hammer) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 160
    shed = [answer for answer in answers if answer.status_code != 200]
    assert {answer.status_code for answer in shed} == {503}
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in shed)
    assert len(answers) - len(shed) >= 4
    assert server.metric("bitedge_shed_total") == len(shed)


def test_a_deadline_of_the_request_is_kept(start_server: Start) -> None:
    server = start_server("--threads", "1", "--batch-delay-ms", "300", "--max-batch", "4096")
    answers: dict[str, httpx2.Response] = {}

    def ask(name: str, query: str, headers: dict[str, str]) -> None:
        answers[name] = httpx2.post(f"{server.url}/v1/classify{query}", content=png(), headers=headers)

    asks = [("query", "?timeout_ms=50", {}), ("header", "", {"x-timeout-ms": "50"}), ("patient", "", {})]
    threads = [threading.Thread(target=ask, args=one) for one in asks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {name: answer.status_code for name, answer in answers.items()} == {
        "query": 503,
        "header": 503,
        "patient": 200,
    }
    assert "deadline" in answers["query"].json()["error"]
    assert int(answers["query"].headers["retry-after"]) >= 1


def test_the_log_has_request_ids_and_no_image_data(start_server: Start) -> None:
    server = start_server()
    httpx2.post(f"{server.url}/v1/classify", content=png(), headers={"x-request-id": "photo-7"})
    server.stop()
    (line,) = [line for line in server.events("request") if line["request_id"] == "photo-7"]
    assert {"time", "level", "method", "path", "status", "ms", "model", "caller"} <= set(line)
    assert (line["status"], line["model"]) == (200, "first")
    assert "PNG" not in server.log()


def test_workers_that_cannot_start_end_the_service(start_server: Start, tmp_path: Path) -> None:
    from bitedge.serve.security.keys import new_key

    keys = tmp_path / "keys"
    keys.write_text(new_key("anybody")[1])
    server = start_server("--workers", "2", "--keys-file", str(keys))
    keys.unlink()
    for pid in server.workers():
        os.kill(pid, signal.SIGKILL)
    assert server.process.wait(timeout=300) == 1
    assert server.events("workers keep failing; giving up")


def test_no_worker_outlives_its_supervisor(start_server: Start) -> None:
    server = start_server("--workers", "2")
    wait_until(lambda: len(server.events("model loaded")) == 6, "both workers")
    workers = server.workers()
    server.process.kill()
    server.process.wait()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), "the end of the workers")
    assert len(server.events("the supervisor is gone; ending")) == 2
