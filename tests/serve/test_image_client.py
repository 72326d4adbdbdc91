"""NVIDIA's image_client.py, as it comes, in its five modes.

The script is in src/python/examples of triton-inference-server/client, and in no package. Name a copy of it to run this
test: `BITEDGE_IMAGE_CLIENT=image_client.py pytest tests/serve/test_image_client.py`; over HTTP it needs attrdict.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.serve.pictures import png
from tests.serve.running_server import RunningServer, free_port

SCRIPT = os.environ.get("BITEDGE_IMAGE_CLIENT")
MODES = (("HTTP",), ("HTTP", "--async"), ("gRPC",), ("gRPC", "--async"), ("gRPC", "--streaming"))


@pytest.mark.skipif(SCRIPT is None, reason="BITEDGE_IMAGE_CLIENT names no image_client.py")
def test_every_mode_passes_with_the_same_answers(start_server: Callable[..., RunningServer], tmp_path: Path) -> None:
    port = free_port()
    server = start_server("--grpc-port", str(port))
    images = tmp_path / "images"
    images.mkdir()
    for seed in range(3):
        (images / f"{seed}.png").write_bytes(png(seed))
    said: list[str] = []
    for protocol, *options in MODES:
        address = server.address if protocol == "HTTP" else f"127.0.0.1:{port}"
        command = [sys.executable, str(SCRIPT), "-m", "first", "-c", "2", "-b", "2", "-i", protocol, "-u", address]
        done = subprocess.run([*command, *options, str(images)], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.endswith("PASS\n")
        said.append(done.stdout)
    assert set(said) == {said[0]}
