"""Faults that were found in review, each with a request or event that shows it; the numbers are those of the review."""

from __future__ import annotations

import asyncio
import gzip
import json
import shutil
import struct
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import onnx
import pytest
from starlette.testclient import TestClient
from tests.serve.conftest import export_network
from tests.serve.load import wait_until
from tests.serve.pictures import pixels, png
from tests.serve.running_server import RunningServer

from bitedge.serve import app as app_module
from bitedge.serve.api import oip
from bitedge.serve.api.errors import DeadlineExceededError, ModelFaultError
from bitedge.serve.inference import batcher as batcher_module
from bitedge.serve.inference.job import Job
from bitedge.serve.inference.preprocessing import ImageLimits, Preprocessing, open_image, prepare
from bitedge.serve.models.backends import load_model
from bitedge.serve.observability.context import RequestContext
from bitedge.serve.security.dependencies import Service
from bitedge.serve.settings import load_settings

INFER = "/v2/models/first/infer"


MakeService = Callable[..., Service]


@pytest.fixture
def service_of(tmp_path: Path) -> MakeService:
    def make(models: Path, **options: Any) -> Service:
        service = Service(load_settings({"models": models, "threads": 1, "run_folder": tmp_path / "run", **options}))
        service.registry.refresh()
        return service

    return make


@pytest.mark.parametrize("fault", [MemoryError(), RuntimeError("odd"), SystemExit(3)])
def test_7_whatever_a_job_raises_the_thread_goes_on(
    networks: tuple[Path, Path], service_of: MakeService, monkeypatch: pytest.MonkeyPatch, fault: BaseException
) -> None:
    """Defect 7: anything but a ServeError ended the inference thread; the next job waited for ever."""
    service = service_of(networks[0])
    prepared = vars(batcher_module)["prepare"]

    def failing(*arguments: Any) -> Any:
        monkeypatch.setattr(batcher_module, "prepare", prepared)
        raise fault

    async def main() -> None:
        service.batcher.start()
        monkeypatch.setattr(batcher_module, "prepare", failing)
        model = service.registry.get()
        jobs = [Job(model, png(), time.perf_counter() + 60) for _ in range(2)]
        for job in jobs:
            (outcome,) = await service.run([job], 60, RequestContext("x"))
            expected = (
                ("ShedError" if isinstance(fault, MemoryError) else "InternalError") if job is jobs[0] else "Answer"
            )
            assert type(outcome).__name__ == expected
        assert service.batcher.pending == 0
        assert service.live()
        await asyncio.to_thread(service.batcher.stop)

    asyncio.run(main())


def test_7_every_wait_ends_and_a_stalled_thread_is_not_alive(
    networks: tuple[Path, Path], service_of: MakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect 7: a job hung past its deadline, and /readyz stayed 200."""
    monkeypatch.setattr("bitedge.serve.security.dependencies.GRACE_SECONDS", 0.2)
    service = service_of(networks[0], stall_seconds=1)
    model, ends = service.registry.get(), time.monotonic() + 3
    inner = model.run

    def slow(images: Any) -> Any:
        time.sleep(max(0.0, ends - time.monotonic()))
        return inner(images)

    model.run = slow  # type: ignore[method-assign]

    async def main() -> None:
        service.batcher.start()
        with pytest.raises(DeadlineExceededError) as caught:
            await service.run([Job(model, png(), time.perf_counter() + 60)], 0.3, RequestContext("x"))
        assert caught.value.status == 504
        while service.live():
            await asyncio.sleep(0.05)
        while not service.live():
            await asyncio.sleep(0.05)
        assert service.batcher.pending == 0
        await asyncio.to_thread(service.batcher.stop)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_8_a_body_is_unpacked_no_further_than_the_model_needs(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect 8: a gzip body of 8 kB stalled the event loop for 0.3 s: its size was checked before unpacking."""
    where: list[str] = []
    decompress = vars(oip)["decompress"]

    def noting(*arguments: Any) -> bytes:
        where.append(threading.current_thread().name)
        return bytes(decompress(*arguments))

    monkeypatch.setattr(oip, "decompress", noting)
    bomb = gzip.compress(bytes(8 << 20))
    assert len(bomb) < 10_000
    assert client.post(INFER, content=bomb, headers={"content-encoding": "gzip"}).status_code == 413
    assert [name.startswith("parse") for name in where] == [True]


def test_8_parsing_is_done_in_threads(networks: tuple[Path, Path], service_of: MakeService) -> None:
    """Defect 8: 1 MiB of look-alikes of a boundary stalled the event loop for 0.13 s."""
    service = service_of(networks[0])
    where: list[str] = []

    async def main() -> None:
        for size in (100, 1 << 20):
            await service.parse(lambda: where.append(threading.current_thread().name), size)

    asyncio.run(main())
    assert where[0] == "MainThread"
    assert where[1].startswith("parse")


@pytest.mark.parametrize("value", ["1e999", "NaN", "-1", "1.5", '"3"', "true", "1e308"])
def test_9_no_parameter_makes_a_500(client: TestClient, value: str) -> None:
    """Defect 9: `classification: 1e999` was answered 500, and `timeout: NaN` was accepted."""
    name = client.get("/v2/models/first").json()["outputs"][0]["name"]
    inputs = [{"name": "image", "shape": [1, 32, 32, 3], "datatype": "UINT8", "data": pixels().ravel().tolist()}]
    for field in ("classification", "timeout"):
        parameters = f'{{"{field}": {value}}}'
        outputs = f'[{{"name": "{name}", "parameters": {parameters if field == "classification" else "{}"}}}]'
        own = parameters if field == "timeout" else "{}"
        text = f'{{"inputs": {json.dumps(inputs)}, "parameters": {own}, "outputs": {outputs}}}'
        answer = client.post(INFER, content=text)
        accepted = field == "timeout" and value in ("1.5", "1e308")
        assert answer.status_code in ((200, 503) if accepted else (400,)), (field, value, answer.text)


@pytest.mark.parametrize("length", ["\xb2", "1e3", "-1", "", "99999999999999999999"])
def test_9_no_header_makes_a_500(client: TestClient, length: str) -> None:
    """Defect 9: a superscript two is a digit to Python, but not a number."""
    headers = {"inference-header-content-length": length.encode("latin-1")}
    assert client.post(INFER, content=b"{}", headers=headers).status_code == 400  # type: ignore[arg-type]


def test_11_a_model_that_no_backend_can_run_is_refused(tmp_path: Path) -> None:
    """Defect 11: an ONNX file with a fixed batch raised what the folder watch did not catch, and ended it."""
    export_network(tmp_path / "net", 1, formats=("gguf", "onnx"))
    model = onnx.load(tmp_path / "net" / "model.onnx")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    (golden,) = [row for row in model.metadata_props if row.key == "bitedge.golden"]
    model.metadata_props.remove(golden)
    onnx.save(model, tmp_path / "fixed.onnx")
    with pytest.raises(ModelFaultError, match="cannot be run"):
        load_model(tmp_path / "fixed.onnx", name="fixed", version="1")


def test_11_a_background_task_that_fails_begins_again(
    start_server: Callable[..., RunningServer], repository: Path
) -> None:
    """Defect 11: the folder watch ended in silence when the folder was away."""
    server = start_server("--poll-seconds", "0.1")
    away = repository.with_name("away")
    repository.rename(away)
    wait_until(lambda: bool(server.events("a background task failed")), "a report")
    away.rename(repository)
    shutil.copytree(repository / "first" / "1", repository / "first" / "3")
    wait_until(lambda: httpx2.get(f"{server.url}/v2/models/first/versions/3/ready").status_code == 200, "version 3")


def test_11_every_task_is_supervised(
    networks: tuple[Path, Path], service_of: MakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect 11: a task that raised was gone."""
    monkeypatch.setattr(app_module, "RESTART_SECONDS", 0.0)
    runs: list[int] = []

    async def task(_: Service) -> None:
        runs.append(1)
        if len(runs) < 3:
            raise LookupError("gone")

    asyncio.run(app_module.supervise(service_of(networks[0]), task))
    assert len(runs) == 3


def rgba_png(side: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 6, 0, 0, 0)
    rows = zlib.compress(bytes((side * 4 + 1) * side), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_16_an_image_with_alpha_is_composited_in_place() -> None:
    """Defect 16: a small RGBA PNG cost 16 bytes a pixel at its peak."""
    code = f"""
import resource
from tests.serve.test_defects import decode_rgba
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
decode_rgba({3000})
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert int(done.stdout) < 11.5 * 3000 * 3000


def decode_rgba(side: int) -> None:
    geometry = Preprocessing(height=32, width=32)
    seen = prepare(open_image(rgba_png(side), ImageLimits()), geometry, ImageLimits())
    assert (seen == 255).all(), "transparent black lies on white"


def test_16_large_images_share_a_budget_of_pixels() -> None:
    """Defect 16: every decoder thread could have an image of the largest size."""
    from bitedge.serve.api.errors import ShedError
    from bitedge.serve.security.limits import PixelBudget

    budget = PixelBudget(100)
    with budget.reserve(60, 0.0):
        with pytest.raises(ShedError, match="too many large images"), budget.reserve(60, time.perf_counter() + 0.05):
            pass
        with budget.reserve(40, 0.0):
            pass
    with budget.reserve(100, 0.0):
        pass


def test_18_a_request_larger_than_the_queue_is_wrong_and_not_early(make_client: Callable[..., TestClient]) -> None:
    """Defect 18: it was answered 503 with Retry-After for ever."""
    client = make_client(queue=4)
    files = [("image", (str(i), png())) for i in range(5)]
    answer = client.post("/v1/classify/batch", files=files)
    assert (answer.status_code, "at most 4 images" in answer.json()["error"]) == (400, True)
    inputs = np.stack([pixels()] * 5)
    header = {"name": "image", "shape": [5, 32, 32, 3], "datatype": "UINT8", "data": inputs.ravel().tolist()}
    assert client.post(INFER, json={"inputs": [header]}).status_code == 400


def test_24_the_buckets_reach_the_longest_deadline(client: TestClient) -> None:
    """Defect 24: the buckets ended at 2.5 s, deadlines at 600 s; a timestamp's name did not say so."""
    client.post("/v1/classify", content=png())
    text = client.get("/metrics").text
    assert 'bitedge_queue_seconds_bucket{le="500.0"' in text
    assert "bitedge_last_inference_timestamp_seconds" in text
    for name in ("process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds"):
        assert f"\n{name} " in text


def test_24_failures_and_successes_are_counted_in_requests(
    networks: tuple[Path, Path], service_of: MakeService
) -> None:
    """Defect 24: `success` counted requests and `fail` images."""
    service = service_of(networks[0])
    model = service.registry.get()
    images = np.stack([pixels()] * 3)

    async def main() -> None:
        service.batcher.start()
        for _ in range(2):
            await service.run([Job(model, images, time.perf_counter() + 60, count=3)], 60, RequestContext("x"))
        model.run = lambda _: 1 / 0  # type: ignore[assignment, return-value, method-assign]
        await service.run([Job(model, images, time.perf_counter() + 60, count=3)], 60, RequestContext("x"))
        await asyncio.to_thread(service.batcher.stop)

    asyncio.run(main())
    (row,) = service.metrics.statistics()
    assert (row["inference_stats"]["success"]["count"], row["inference_stats"]["fail"]["count"]) == (2, 1)
    assert row["inference_count"] == 6
