"""Damaged images and requests: always an answer, never a 500, no crash, no leak."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
from tests.serve.hostile import Hostile, requests
from tests.serve.pictures import png
from tests.serve.running_server import RunningServer

COUNT = 10_000
CLIENTS = 8


def memory(pid: int) -> int:
    """Resident bytes of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


async def send_all(url: str, hostile: list[Hostile]) -> Counter[int]:
    """Send every request and check that the answer is one of ours."""
    statuses: Counter[int] = Counter()
    waiting = iter(hostile)

    async def work(client: httpx2.AsyncClient) -> None:
        for one in waiting:
            answer = await client.request(one.method, url + one.path, content=one.body, headers=one.headers)
            statuses[answer.status_code] += 1
            if answer.status_code >= 400:
                assert list(answer.json()) == ["error"], (one, answer.text)
            if answer.status_code in (429, 503):
                assert int(answer.headers["retry-after"]) >= 1

    async with httpx2.AsyncClient(timeout=60) as client:
        await asyncio.gather(*(work(client) for _ in range(CLIENTS)))
    return statuses


@pytest.mark.slow
def test_ten_thousand_hostile_requests(start_server: Callable[..., RunningServer]) -> None:
    server = start_server("--no-access-log")
    hostile = list(requests(COUNT, seed=8))
    statuses = asyncio.run(send_all(server.url, hostile[: COUNT // 2]))
    (worker,) = server.workers()
    before = memory(worker)
    statuses += asyncio.run(send_all(server.url, hostile[COUNT // 2 :]))
    assert sum(statuses.values()) == COUNT
    assert set(statuses) <= {200, 400, 404, 405, 413, 415, 503}
    assert statuses[400] > COUNT / 10
    assert statuses[200] > COUNT / 100, "some damage leaves a whole image"
    assert server.process.poll() is None
    assert memory(worker) < before + 64 * 2**20
    assert open_files(worker) < 96
    assert httpx2.post(f"{server.url}/v1/classify", content=png()).status_code == 200
    metrics = httpx2.get(f"{server.url}/metrics").text
    assert "bitedge_pending_images 0.0" in metrics
    assert not server.events("request failed")
