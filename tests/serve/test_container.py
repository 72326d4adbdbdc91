"""The image is really built and started, without a Docker engine: buildah on a base made by debootstrap."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from filelock import FileLock
from tests.serve.pictures import png
from tests.serve.running_server import free_port

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "build" / "test-cache"
MOST_BYTES = 250_000_000
PACKAGES = "python3,python3-venv,ca-certificates"
NOT_NEEDED = ("var/cache/apt", "var/lib/apt/lists", "var/log", "usr/share/doc", "usr/share/man", "usr/share/locale")

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("container"), pytest.mark.timeout(3600)]


class Buildah:
    """Commands of buildah, with a storage of their own."""

    def __init__(self, folder: Path) -> None:
        places = ["--root", str(folder / "storage"), "--runroot", str(folder / "run"), "--storage-driver", "vfs"]
        self.command = ["buildah", *places]

    def __call__(self, *words: str) -> str:
        done = subprocess.run([*self.command, *words], capture_output=True, text=True)
        assert done.returncode == 0, f"buildah {' '.join(words)}: {done.stdout[-3000:]} {done.stderr[-3000:]}"
        return done.stdout.strip()


def base_folder() -> Path:
    """A Debian with Python, kept from run to run; it stands for python:3-slim, which cannot be fetched here."""
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = CACHE / "container-base"
    with FileLock(CACHE / "container-base.lock"):
        if not folder.exists():
            partial = CACHE / f"container-base.{os.getpid()}"
            command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(partial)]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
            for name in NOT_NEEDED:
                shutil.rmtree(partial / name, ignore_errors=True)
                (partial / name).mkdir()
            shutil.copy("/etc/ssl/certs/ca-certificates.crt", partial / "etc/ssl/certs/ca-certificates.crt")
            partial.rename(folder)
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Buildah]:
    missing = [tool for tool in ("buildah", "debootstrap") if shutil.which(tool) is None]
    if missing or os.geteuid() != 0:
        reason = f"building an image needs root and: apt-get install {' '.join(missing)}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("buildah")
    buildah = Buildah(folder)
    container = buildah("from", "scratch")
    buildah("add", "--quiet", container, str(base_folder()), "/")
    buildah("commit", "--quiet", "--rm", container, "localhost/base")
    bases = ["--build-arg", "BUILD_IMAGE=localhost/base", "--build-arg", "BASE_IMAGE=localhost/base"]
    options = ["--isolation", "chroot", "--format", "docker", "--tag", "localhost/bitedge"]
    buildah("bud", *options, *bases, str(ROOT))
    yield buildah
    subprocess.run([*buildah.command, "rm", "--all"], capture_output=True)
    shutil.rmtree(folder, ignore_errors=True)


def test_the_image_is_small_and_says_how_it_is_run(built: Buildah) -> None:
    (image,) = [row for row in json.loads(built("images", "--json")) if "localhost/bitedge:latest" in row["names"]]
    description: dict[str, Any] = json.loads(built("inspect", "--type", "image", "localhost/bitedge"))
    size = size_of(built)
    print(f"image: {image['size']}, {size} bytes of files")
    assert size < MOST_BYTES
    config = description["Docker"]["config"]
    assert config["User"] == "10001:10001"
    assert config["Entrypoint"] == ["bitedge", "serve"]
    assert config["Healthcheck"]["Test"][0] == "CMD"
    assert config["StopSignal"] == "SIGTERM"
    assert config["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"


def size_of(built: Buildah) -> int:
    """Bytes of all files in the image."""
    container = built("from", "localhost/bitedge")
    mounted = Path(built("mount", container))
    total = sum(path.lstat().st_size for path in mounted.rglob("*") if not path.is_symlink() and path.is_file())
    assert not list(mounted.glob("usr/bin/*g++*")), "no compiler"
    assert not list(mounted.glob("opt/bitedge/lib/python*/site-packages/torch")), "no torch"
    assert not list(mounted.glob("opt/bitedge/lib/python*/site-packages/pip")), "no pip"
    built("umount", container)
    built("rm", container)
    return total


def test_a_container_classifies_an_image_from_outside(built: Buildah) -> None:
    container, port = built("from", "localhost/bitedge"), free_port()
    served = ["bitedge", "serve", "/models", "--host", "0.0.0.0", "--port", str(port), "--workers", "2"]
    command = [*built.command, "run", "--isolation", "chroot", "--cap-drop", "all", container, "--", *served]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until_ready(process, url)
        answer = httpx2.post(f"{url}/v1/classify", content=png(), timeout=60)
        assert answer.status_code == 200, answer.text
        assert answer.json()["model"] == "digits"
        check = f"import urllib.request as u; u.urlopen('http://127.0.0.1:{port}/healthz', timeout=2)"
        assert check.replace(str(port), "8080") in (ROOT / "Dockerfile").read_text()
        probe = ["python3", "-c", check]
        built("run", "--isolation", "chroot", container, "--", *probe)
        server = server_process(served)
        assert "\nUid:\t10001\t10001" in Path(f"/proc/{server}/status").read_text(), "not root"
        os.kill(server, signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(timeout=30)
        assert process.stdout is not None
        process.stdout.close()


def wait_until_ready(process: subprocess.Popen[str], url: str) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        assert process.poll() is None, process.stdout.read() if process.stdout else ""
        try:
            if httpx2.get(f"{url}/readyz").status_code == 200:
                return
        except httpx2.HTTPError:
            time.sleep(0.2)
    pytest.fail("the container was not ready within two minutes")


def server_process(served: list[str]) -> int:
    """The process in the container that has the server's own command line."""
    wanted = "\0".join(served[1:]) + "\0"
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_text()
        except OSError:
            continue
        if words.endswith(wanted) and "python" in words.split("\0")[0]:
            return int(folder.name)
    pytest.fail("the server's process was not found")
