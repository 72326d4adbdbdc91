"""The wheel: one file, all portions, the shared library, and nothing but numpy beside it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("wheel")]


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "BITEDGE_"))}
    return subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, check=False, env=environment, cwd="/"
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    words = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", out, ROOT)
    done = run(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    found = list(out.glob("*.whl"))
    assert len(found) == 1
    return found[0]


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment that holds the wheel and what it asks for."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=True)
    done = run(folder / "bin/python", "-m", "pip", "install", "-c", ROOT / "constraints.txt", wheel)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "bin"


def test_one_wheel_serves_every_python(wheel: Path) -> None:
    assert "-py3-none-" in wheel.name


def test_wheel_holds_all_portions_and_the_library(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for package in ("train", "export", "runtime", "serve", "cli"):
        assert f"bitedge/{package}/__init__.py" in names
        assert f"bitedge/{package}/py.typed" in names
    assert "bitedge/__init__.py" not in names
    assert any(name.startswith("bitedge/runtime/libbitedge.") for name in names)
    assert any(name.startswith("bitedge/train/recipes/") for name in names)
    sources = [name for name in names if name.endswith((".cpp", ".h", ".o"))]
    assert sources == ["bitedge/export/formats/c/mcu/bitedge_mcu.h"], "only what the export of C writes"


@pytest.mark.parametrize("check", [("twine", "check", "--strict"), ("check-wheel-contents",), ("auditwheel", "show")])
def test_wheel_passes_the_checks_of_a_release(wheel: Path, check: tuple[str, ...]) -> None:
    done = run(Path(sys.executable).with_name(check[0]), *check[1:], wheel)
    assert done.returncode == 0, done.stdout + done.stderr
    if check[0] == "auditwheel":
        assert re.search(r'platform tag:\s+"manylinux_2_\d+', done.stdout), "it needs more than glibc"


def test_sdist_holds_what_a_build_needs_and_no_more(tmp_path: Path) -> None:
    done = run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", tmp_path, ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    (archive,) = tmp_path.glob("*.tar.gz")
    checked = run(Path(sys.executable).with_name("twine"), "check", "--strict", archive)
    assert checked.returncode == 0, checked.stdout
    with tarfile.open(archive) as files:
        names = {name.split("/", 1)[1] for name in files.getnames() if "/" in name}
    needed = {"pyproject.toml", "README.md", "LICENSE", "runtime/CMakeLists.txt", "runtime/VERSION"}
    tracked = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True, cwd=ROOT).stdout.split()
    needed |= {name for name in tracked if name.startswith(("runtime/src/", "runtime/include/", "train/bitedge/"))}
    assert needed <= names
    assert not [name for name in names if name.startswith((".ci", ".github", "build/", "demo/", ".venv"))]


def test_alone_it_brings_only_numpy(bare: Path) -> None:
    listed = json.loads(run(bare / "python", "-m", "pip", "list", "--format", "json").stdout)
    assert {entry["name"] for entry in listed} - {"pip", "setuptools"} == {"bitedge", "numpy"}


def test_predict_works_there_on_an_array(bare: Path, digits_model: Path, tmp_path: Path) -> None:
    image = tmp_path / "image.npy"
    np.save(image, np.full((32, 32, 3), 128, np.uint8))
    done = run(bare / "bitedge", "predict", digits_model, image, "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["predictions"][0]["classes"]) == 3


def test_a_png_asks_for_the_image_extra(bare: Path, digits_model: Path, tmp_path: Path) -> None:
    from PIL import Image

    Image.new("RGB", (32, 32)).save(tmp_path / "image.png")
    done = run(bare / "bitedge", "predict", digits_model, tmp_path / "image.png")
    assert done.returncode == 2
    assert done.stderr.endswith("pip install 'bitedge[image]'\n")
    assert run(bare / "python", "-m", "pip", "install", "-c", ROOT / "constraints.txt", "pillow").returncode == 0
    done = run(bare / "bitedge", "predict", digits_model, tmp_path / "image.png")
    assert done.returncode == 0, done.stderr


def test_verbs_of_other_packages_name_their_extra(bare: Path) -> None:
    for verb, extra in (("train", "train"), ("serve", "serve")):
        words = {"train": ["--recipe", "digits"], "serve": ["."]}[verb]
        done = run(bare / "bitedge", verb, *words)
        assert done.returncode == 2
        assert done.stderr.endswith(f"pip install 'bitedge[{extra}]'\n")
        assert "Traceback" not in done.stderr
