"""What `make arm` makes, run under qemu-user: the static bitedge-bench, and the wheel in an aarch64 Python."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock

from bitedge.runtime import Model

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "build" / "test-cache"
QEMU = "qemu-aarch64-static"
TOOLS = {"aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu", QEMU: "qemu-user-static", "apt-get": "apt", "dpkg": "dpkg"}
# A Debian of its own for apt: nothing is asked of the system's package lists, and nothing is installed into it.
SOURCES = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main\n"
PACKAGES = ("libpython3.11-stdlib", "python3.11-minimal", "libstdc++6")
NUMPY = "numpy==1.26.4"

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("arm")]


def ran(*words: str | Path, **options: Any) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return str(done.stdout)


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The folder with the static binary and the wheel, made anew, once for all workers of this session.

    A second `make arm` would take the files away under the feet of the tests that use them.
    """
    missing = [package for tool, package in TOOLS.items() if shutil.which(tool) is None]
    if missing:
        reason = f"cross-building and running for ARM needs: apt-get install {' '.join(missing)}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    base = tmp_path_factory.getbasetemp() if worker_id == "master" else tmp_path_factory.getbasetemp().parent
    with FileLock(base / "arm.lock"):
        if (base / "arm.done").exists():
            return ROOT / "dist"
        environment = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MAKELEVEL")}
        ran("make", "arm", cwd=ROOT, env=environment)
        (base / "arm.done").touch()
    return ROOT / "dist"


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (found,) = dist.glob("bitedge-*_aarch64.whl")
    return found


def debian_python() -> Path:
    """A root folder with Debian's aarch64 Python, unpacked and kept from run to run."""
    folder = CACHE / "aarch64-python"
    CACHE.mkdir(parents=True, exist_ok=True)
    with FileLock(CACHE / "aarch64-python.lock"):
        if not folder.exists():
            partial = CACHE / f"aarch64-python.{os.getpid()}"
            for name in ("state/lists/partial", "cache/archives/partial", "root"):
                (partial / name).mkdir(parents=True)
            (partial / "status").touch()
            (partial / "sources.list").write_text(SOURCES)
            settings = {
                "Dir::State": partial / "state",
                "Dir::State::status": partial / "status",
                "Dir::Cache": partial / "cache",
                "Dir::Etc::sourcelist": partial / "sources.list",
                "Dir::Etc::sourceparts": "/dev/null",
                "APT::Architecture": "arm64",
                "APT::Architectures::": "arm64",
                "Acquire::Languages": "none",
                "Debug::NoLocking": "true",
            }
            apt = ["apt-get", "-qq", *(f"-o{key}={value}" for key, value in settings.items())]
            ran(*apt, "update")
            ran(*apt, "--yes", "--no-install-recommends", "--download-only", "install", *PACKAGES)
            for package in sorted((partial / "cache/archives").glob("*.deb")):
                ran("dpkg", "-x", package, partial / "root")
            shutil.rmtree(partial / "cache")
            shutil.rmtree(partial / "state")
            partial.rename(folder)
    return folder / "root"


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and numpy, chosen by pip as an aarch64 machine would choose them."""
    folder = tmp_path_factory.mktemp("aarch64")
    platform = wheel.stem.split("-")[-1]
    tags = ["--platform", platform, "--platform", "manylinux2014_aarch64", "--python-version", "3.11"]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    ran(*pip, "--target", folder, "--only-binary=:all:", *tags, NUMPY, wheel)
    return folder


@pytest.mark.parametrize(("cpu", "kernels"), [("cortex-a72", "neon"), ("max", "neondot")])
def test_the_static_binary_checks_and_measures_a_real_model(
    dist: Path, digits_model: Path, cpu: str, kernels: str
) -> None:
    words = ["--threads", "1,2", "--runs", "3", "--profile", "--json"]
    document = json.loads(ran(QEMU, "-cpu", cpu, dist / "bitedge-bench-aarch64", digits_model, *words))
    assert document["host"]["machine"] == "aarch64"
    assert document["host"]["kernels"] == kernels
    assert [row["threads"] for row in document["rows"]] == [1, 2]
    assert all(row["agrees"] and row["ms"]["p50"] > 0 for row in document["rows"])
    used = {layer["kernel"].split()[0] for layer in document["rows"][0]["layers"] if layer["macs"]}
    assert used == {kernels}


def test_the_static_binary_needs_nothing_beside_it(dist: Path) -> None:
    head = ran("aarch64-linux-gnu-objdump", "-p", dist / "bitedge-bench-aarch64")
    assert "NEEDED" not in head
    assert "INTERP" not in head


def test_the_static_binary_needs_no_file(dist: Path) -> None:
    words = ["--net", "birealnet18", "--width", "16", "--image-size", "64", "--runs", "1"]
    assert "birealnet18 on " in ran(QEMU, dist / "bitedge-bench-aarch64", *words)


def test_the_wheel_gives_the_golden_answers(installed: Path, digits_model: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    np.save(installed / "images.npy", images)
    script = (
        "import platform, sys, numpy as np\n"
        "from bitedge.runtime import Model\n"
        "model = Model(sys.argv[1])\n"
        "model.check()\n"
        f"np.save({str(installed / 'answers.npy')!r}, model.run(np.load({str(installed / 'images.npy')!r})))\n"
        "print(platform.machine(), model.kernels)\n"
    )
    root = debian_python()
    environment = os.environ | {"PYTHONPATH": str(installed), "PYTHONHOME": str(root / "usr"), "PYTHONNOUSERSITE": "1"}
    environment.pop("BITEDGE_LIBRARY", None)
    words = [QEMU, "-L", str(root), str(root / "usr/bin/python3.11"), "-c", script, str(digits_model)]
    assert ran(*words, env=environment) == "aarch64 neondot\n"
    answers = np.load(installed / "answers.npy", allow_pickle=False)
    np.testing.assert_allclose(answers, Model(digits_model).run(images), rtol=1e-6, atol=1e-6)


def test_the_wheel_promises_no_older_glibc_than_it_needs(wheel: Path, tmp_path: Path) -> None:
    promised = re.search(r"-py3-none-manylinux_(\d+)_(\d+)_aarch64$", wheel.stem)
    assert promised
    with zipfile.ZipFile(wheel) as archive:
        library = archive.extract("bitedge/runtime/libbitedge.so", tmp_path)
        assert any(name.endswith(".data/scripts/bitedge-bench") for name in archive.namelist())
    needed = re.findall(r"GLIBC_(\d+)\.(\d+)", ran("aarch64-linux-gnu-objdump", "-T", library))
    assert max((int(a), int(b)) for a, b in needed) == (int(promised[1]), int(promised[2]))
