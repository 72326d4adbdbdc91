"""Servers as processes: draining, several workers, and models replaced under load."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import socket
import subprocess
import sys
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


def replaced(server: RunningServer, victim: int, workers: int = 2) -> None:
    """Wait until another worker has taken a dead one's place."""
    server.wait_for(lambda: len(server.workers()) == workers and victim not in server.workers(), "a new worker")
    server.wait_for(lambda: server.answers("/readyz"), "ready")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_sigterm_finishes_what_was_accepted_and_refuses_the_rest(start_server: Start, workers: str) -> None:
    """Defect 21: while draining, connections were accepted by nobody, and then reset."""
    server = start_server("--workers", workers, "--batch-delay-ms", "1000", "--max-batch", "4096")
    answers: list[httpx2.Response] = []

    def ask() -> None:
        answers.append(httpx2.post(f"{server.url}/v1/classify", content=png(), timeout=60))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    server.wait_for(lambda: server.metric("bitedge_pending_images") == 8 or len(answers) == 8, "accepted")
    server.process.send_signal(signal.SIGTERM)
    host, port = server.address.split(":")

    def refused() -> bool:
        try:
            socket.create_connection((host, int(port))).close()
        except ConnectionRefusedError:
            return True
        return False

    wait_until(refused, "a closed listener")
    for thread in threads:
        thread.join()
    assert [answer.status_code for answer in answers] == [200] * 8
    assert server.process.wait(timeout=60) == 0


def test_sigint_ends_it_too(start_server: Start) -> None:
    assert start_server().stop(signal.SIGINT) == 0


def test_sigterm_during_the_start_ends_it(repository: Path) -> None:
    """Defect 12: it hung until SIGKILL."""
    command = [sys.executable, "-m", "bitedge.cli", "serve", str(repository), "--port", "0", "--workers", "2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    wait_until(lambda: len(children.read_text().split()) >= 2, "the first worker")
    process.terminate()
    assert process.wait(timeout=60) == 0
    assert process.stdout is not None
    process.stdout.close()


def test_workers_count_together(start_server: Start) -> None:
    """Defects 20 and 24: the gauge of pending images was that of one worker; there were no process metrics."""
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
    assert [row["inference_stats"]["success"]["count"] for row in stats] == [total]
    resident = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 for pid in server.workers()]
    assert server.metric("process_resident_memory_bytes") == pytest.approx(sum(resident), rel=0.1)
    assert server.metric("process_cpu_seconds_total") > 0
    assert server.metric("bitedge_last_inference_timestamp_seconds") > 1.7e9


def test_the_pending_images_of_all_workers_are_counted(tmp_path: Path) -> None:
    """Defect 20: the gauge was set by the worker that was asked; a dead worker's images do not count."""
    code = "from bitedge.serve.observability.metrics import Metrics; m = Metrics(); m.pending.set(%d); "
    code += "print(flush=True); input()"
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    pipe = subprocess.PIPE
    workers = [
        subprocess.Popen([sys.executable, "-c", code % count], env=environment, stdin=pipe, stdout=pipe)
        for count in (3, 4)
    ]
    script = "from bitedge.serve.observability.metrics import Metrics; print(Metrics().exposition().decode())"

    def pending() -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        )
        return [line for line in done.stdout.splitlines() if line.startswith("bitedge_pending_images ")]

    for worker in workers:
        assert worker.stdout is not None
        worker.stdout.readline()
    assert pending() == ["bitedge_pending_images 7.0"]
    for worker, left in zip(workers, (["bitedge_pending_images 4.0"], ["bitedge_pending_images 0.0"]), strict=True):
        worker.kill()
        worker.communicate()
        assert pending() == left


def test_load_and_unload_hold_for_every_worker(start_server: Start, repository: Path) -> None:
    """Defect 13: a load that was refused changed one worker and not the others."""
    server = start_server("--workers", "2", "--admin", "open", "--poll-seconds", "0")

    def statuses(path: str) -> set[int]:
        return {httpx2.get(f"{server.url}/v2/models/{path}/ready").status_code for _ in range(20)}

    order = f"{server.url}/v2/repository/models"
    assert httpx2.post(f"{order}/first/unload", timeout=60).status_code == 200
    server.wait_for(lambda: statuses("first") == {404}, "unloaded in both workers")
    victim = server.workers()[0]
    os.kill(victim, signal.SIGKILL)
    replaced(server, victim)
    assert statuses("first") == {404}, "the new worker knows of the order"
    assert httpx2.post(f"{order}/first/load", timeout=60).status_code == 200
    server.wait_for(lambda: statuses("first") == {200}, "loaded in both workers")
    for version, data in (("2", (repository / "second/1/model.gguf").read_bytes()), ("3", b"nonsense")):
        (repository / "second" / version).mkdir()
        (repository / "second" / version / "model.gguf").write_bytes(data)
    refusal = httpx2.post(f"{order}/second/load", timeout=60)
    assert (refusal.status_code, "version 3 is refused" in refusal.json()["error"]) == (400, True)
    server.wait_for(lambda: statuses("second/versions/2") == {200}, "the good version in both workers")
    assert statuses("second/versions/3") == {404}


def test_a_killed_worker_is_replaced_while_the_others_serve(start_server: Start, tmp_path: Path) -> None:
    """Defect 12: workers that could not start ended the healthy ones too."""
    from bitedge.serve.security.keys import new_key

    secret, line = new_key("anybody")
    keys = tmp_path / "keys"
    keys.write_text(line)
    server = start_server("--workers", "2", "--keys-file", str(keys))
    keys.unlink()  # a worker that starts now finds no key, and must refuse everybody
    victim = server.workers()[0]
    os.kill(victim, signal.SIGKILL)
    replaced(server, victim)
    headers = {"x-api-key": secret}
    seen = {httpx2.get(f"{server.url}/v1/models", headers=headers).status_code for _ in range(40)}
    assert seen == {200, 401}


def test_no_worker_outlives_its_parent(start_server: Start) -> None:
    server = start_server("--workers", "2")
    workers = server.workers()
    server.process.kill()
    server.process.wait()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), "the end of the workers")
    assert len(server.events("the parent process is gone; ending")) == 2


def test_the_parent_keeps_no_model_in_memory(repository: Path) -> None:
    """Defect 22: the process that starts the workers kept all models loaded."""
    from bitedge.serve.models.backends import ServedModel
    from bitedge.serve.server import check
    from bitedge.serve.settings import load_settings

    gc.collect()
    before = sum(type(thing) is ServedModel for thing in gc.get_objects())
    settings = check(load_settings({"models": repository, "default_model": "second"}))
    assert settings.default_model == "second"
    assert sum(type(thing) is ServedModel for thing in gc.get_objects()) == before


def test_a_worker_that_makes_no_progress_ends_itself(networks: tuple[Path, Path], tmp_path: Path) -> None:
    """Defect 12: workers that hang were never found."""
    code = f"""
import asyncio, os, threading, time
from pathlib import Path
from bitedge.serve.security.dependencies import Service
from bitedge.serve.inference.job import Job
from bitedge.serve.server import watch
from bitedge.serve.settings import load_settings

service = Service(load_settings({{"models": Path({str(networks[0])!r}), "stall_seconds": 1,
    "run_folder": Path({str(tmp_path)!r})}}))
service.registry.refresh()
model = service.registry.get()
model.run = lambda images: time.sleep(600)

async def main():
    service.batcher.start()
    assert service.live()
    service.batcher.submit(Job(model, {png()!r}, time.perf_counter() + 600))
    threading.Thread(target=watch, args=(service, os.getppid()), daemon=True).start()
    await asyncio.sleep(600)

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=120, capture_output=True)
    assert done.returncode == 70, done.stderr.decode()


def test_models_are_replaced_and_bad_ones_refused_under_load(
    start_server: Start, repository: Path, networks: tuple[Path, Path]
) -> None:
    server = start_server("--poll-seconds", "0.1")
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
    server = start_server("--threads", "1", "--batch-delay-ms", "1000", "--max-batch", "4096")
    host, port = server.address.split(":")
    body = png()
    head = f"POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    patient: list[httpx2.Response] = []
    waiting = threading.Thread(
        target=lambda: patient.append(httpx2.post(f"{server.url}/v1/classify", content=body, timeout=60))
    )
    waiting.start()
    for _ in range(10):
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(head + body)
            time.sleep(0.1)  # how long this client has patience, not a condition
    waiting.join()
    assert patient[0].status_code == 200
    wait_until(lambda: len(server.events("request")) >= 11, "the end of all requests")
    wait_until(lambda: server.metric("bitedge_pending_images") == 0, "an empty queue")
    left = server.metric('bitedge_dropped_images_total{reason="disconnected"}')
    assert left >= 1
    assert server.metric("bitedge_images_total") == 11 - left
    reasons = [line["reason"] for line in server.events("request") if line["status"] == 499]
    assert reasons == ["disconnected"] * int(left)


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
