"""Finding the library, what importing costs, and the C example built as a user would."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from tests.runtime.packed_file import small_model

from bitedge.runtime import Model, RuntimeFault, version
from bitedge.runtime.library import find_library

ROOT = Path(__file__).resolve().parents[2]


def test_the_environment_names_the_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "other.so"
    monkeypatch.setenv("BITEDGE_LIBRARY", str(path))
    with pytest.raises(RuntimeFault, match=r"BITEDGE_LIBRARY names .*other\.so, which is not a file"):
        find_library()
    path.touch()
    assert find_library() == path


def test_a_file_that_is_no_library_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.so"
    path.write_text("not a library")
    code = "import bitedge.runtime as r\ntry:\n    r.version()\nexcept r.RuntimeFault as fault:\n    print(fault)"
    environment = {"BITEDGE_LIBRARY": str(path), "PYTHONPATH": str(ROOT / "runtime")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert f"{path} cannot be loaded" in done.stdout


def test_the_core_has_the_version_of_the_package() -> None:
    """`runtime/` can be copied into another project, so it has a file of its own."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (ROOT / "runtime" / "VERSION").read_text().strip() == project["version"] == version()


def test_importing_the_runtime_brings_numpy_and_nothing_else() -> None:
    code = (
        "import sys; before = set(sys.modules); import bitedge.runtime; "
        "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before} - sys.stdlib_module_names))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {name for name in done.stdout.split() if not name.startswith("_")} <= {"bitedge", "numpy", "cython_runtime"}


def test_the_c_example_classifies(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: the C example cannot be built")
    library = find_library()
    program = tmp_path / "classify"
    source = ROOT / "runtime" / "examples" / "classify.c"
    command = [compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", str(source), f"-I{ROOT / 'runtime' / 'include'}"]
    subprocess.run([*command, str(library), f"-Wl,-rpath,{library.parent}", "-o", str(program)], check=True)
    model = tmp_path / "model.gguf"
    model.write_bytes(small_model().build())
    image = np.random.default_rng(5).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    raw = tmp_path / "image.bin"
    raw.write_bytes(image.tobytes())
    done = subprocess.run([program, model, raw], capture_output=True, text=True, check=True)
    answer = Model(model).run(image[None])[0]
    label, score = done.stdout.rstrip("\n").rsplit(" ", 1)
    assert label == Model(model).labels[int(answer.argmax())]
    assert float(score) == pytest.approx(float(answer.max()), rel=1e-5)
    refused = subprocess.run([program, raw], capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert refused.stderr == f"load: {raw}: not a packed model: it does not start with 'GGUF'\n"
