"""The folder that the format `c` writes: it builds everywhere, passes its test vectors, and keeps its promises."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest
from tests.export.formats.c.networks import V2_STEPS, bundle_of, float_graph

from bitedge.export import ExportError, export_run
from bitedge.export.formats.c.writer import write
from bitedge.export.verify.engines.c import CSession
from bitedge.runtime import Model
from bitedge.runtime.golden import golden_images

STRICT = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wshadow", "-Wcast-align", "-Wstrict-prototypes", "-Werror")
BUILDS = {
    "gcc": ("gcc", "-O2"),
    "clang": ("clang", "-O2"),
    "32 bit, x87": ("gcc", "-O2", "-m32", "-mno-sse"),
    "32 bit, SSE": ("gcc", "-O2", "-m32", "-msse2", "-mfpmath=sse"),
    "sanitizers": ("gcc", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    "link-time optimization": ("gcc", "-O3", "-flto"),
    "popcount by instruction": ("gcc", "-O2", "-mpopcnt", "-mfma"),
}


def ran(*words: str | Path, cwd: Path) -> str:
    done = subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def unavailable(reason: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def digits(digits_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("digits")
    report = export_run(digits_run, out, formats=["gguf", "c"])
    assert report.failures == {}
    return out


@pytest.fixture(scope="module")
def folders(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """An integer network, and one with floats, means, a gate and exponentials."""
    floats = tmp_path_factory.mktemp("floats") / "c"
    nodes = (*V2_STEPS["gate"], *V2_STEPS["group norm"][:0])
    write(bundle_of(float_graph(*nodes)), floats)
    return [digits / "c", floats]


@pytest.mark.parametrize("build", BUILDS)
def test_it_builds_without_a_warning_and_passes_its_vectors(build: str, folders: list[Path], tmp_path: Path) -> None:
    compiler, *flags = BUILDS[build]
    if shutil.which(compiler) is None:
        unavailable(f"needs {compiler}: apt-get install {compiler}")
    (tmp_path / "empty.c").write_text("#include <stdio.h>\nint main(void) { return 0; }\n", encoding="utf-8")
    if "-m32" in flags and subprocess.run([compiler, "-m32", "empty.c"], cwd=tmp_path, capture_output=True).returncode:
        unavailable("needs 32-bit libraries: apt-get install gcc-12-multilib (gcc-multilib removes cross compilers)")
    for folder in folders:
        sources = [folder / name for name in ("selftest.c", "model.c", "bitedge_mcu.c")]
        ran(compiler, *flags, *STRICT, "-o", "selftest", *sources, cwd=tmp_path)
        assert "2 of 2 right" in ran("./selftest", cwd=tmp_path)


def test_a_wrong_weight_is_found_by_the_vectors(digits: Path, tmp_path: Path) -> None:
    shutil.copytree(digits / "c", tmp_path, dirs_exist_ok=True)
    model = (tmp_path / "model.c").read_text(encoding="utf-8")
    start = model.index("threshold_1[")
    first = model.index("= {", start) + 3
    (tmp_path / "model.c").write_text(model[:first] + " 30000 *" + model[first:], encoding="utf-8")
    ran("cc", "-std=c99", "-o", "selftest", "selftest.c", "model.c", "bitedge_mcu.c", cwd=tmp_path)
    assert subprocess.run(["./selftest"], cwd=tmp_path, capture_output=True).returncode == 1


def test_make_and_cmake(digits: Path, tmp_path: Path) -> None:
    shutil.copytree(digits / "c", tmp_path / "c")
    assert "2 of 2 right" in ran("make", "test", cwd=tmp_path / "c")
    cmake = shutil.which("cmake")
    assert cmake is not None
    ran(cmake, "-S", "c", "-B", "build", cwd=tmp_path)
    ran(cmake, "--build", "build", cwd=tmp_path)
    ran("./build/selftest", cwd=tmp_path)


def test_nothing_is_called_but_memcpy_and_memset(folders: list[Path], tmp_path: Path) -> None:
    for folder in folders:
        sources = [folder / "model.c", folder / "bitedge_mcu.c"]
        ran("gcc", "-O2", "-std=c99", "-fno-stack-protector", "-fno-pic", "-c", *sources, cwd=tmp_path)
        lines = ran("nm", "-u", "model.o", "bitedge_mcu.o", cwd=tmp_path).splitlines()
        called = {line.split()[-1] for line in lines if line.strip().startswith("U ")}
        assert {name for name in called if not name.startswith("bitedge_")} <= {"memcpy", "memset"}
    source = (folders[0] / "bitedge_mcu.c").read_text(encoding="utf-8")
    assert "bitedge_softmax" not in source
    assert "bitedge_max_pool2d_bits" in source


def test_the_headers_are_good_for_cpp(digits: Path, tmp_path: Path) -> None:
    (tmp_path / "both.cpp").write_text('#include "model.h"\n#include "bitedge_mcu.h"\n', encoding="utf-8")
    ran("g++", "-std=c++11", "-Wall", "-Wextra", "-Werror", f"-I{digits / 'c'}", "-c", "both.cpp", cwd=tmp_path)


def test_the_same_answers_as_the_core_to_the_bit(digits: Path) -> None:
    model, session = Model(digits / "model.gguf"), CSession(digits / "c")
    images = golden_images("uint8", (32, 32, 3), 7, 20)
    np.testing.assert_array_equal(session.run(images), model.run(images))
    values, core = session.activations(images), model.activations(images)
    for name, value in values.items():
        np.testing.assert_array_equal(value, core[name].reshape(value.shape), err_msg=name)
    with pytest.raises(ExportError, match="expected uint8 images of shape"):
        session.run(images[:, :16])


def test_the_report_and_the_limits(digits: Path, digits_run: Path, tmp_path: Path) -> None:
    report = json.loads((digits / "report.json").read_text(encoding="utf-8"))
    cost = report["figures"]["c"]
    header = (digits / "c" / "model.h").read_text(encoding="utf-8")
    assert f"#define MODEL_ARENA_WORDS {cost['arena'] // 4}\n" in header
    assert cost["ram"] == cost["arena"] + cost["image"] + cost["answer"]
    assert cost["macs"] == report["totals"]["macs_binary"]
    for limit in ("flash", "ram"):
        kept = export_run(digits_run, tmp_path / "kept", formats=["c"], **{f"max_{limit}": cost[limit]})
        assert kept.failures == {}
        broken = export_run(digits_run, tmp_path / "broken", formats=["c"], **{f"max_{limit}": cost[limit] - 1})
        name = cost["largest_layer"] if limit == "flash" else cost["peak_layer"]
        assert repr(name) in broken.failures["c"]
        assert not (tmp_path / "broken" / "c").exists()
    with pytest.raises(ExportError, match="format 'c', which was not asked for"):
        export_run(digits_run, tmp_path, formats=["gguf"], max_ram=1)


def test_libraries_for_arduino_and_platformio(digits: Path, tmp_path: Path) -> None:
    library = json.loads((digits / "c" / "library.json").read_text(encoding="utf-8"))
    assert library["headers"] == "model.h"
    with zipfile.ZipFile(digits / "c" / "arduino.zip") as archive:
        archive.extractall(tmp_path)
    root = tmp_path / "bitedge_model"
    properties = dict(
        line.split("=", 1) for line in (root / "library.properties").read_text(encoding="utf-8").splitlines()
    )
    assert {"name", "version", "author", "maintainer", "sentence", "paragraph", "category", "url"} <= set(properties)
    assert (root / "examples" / "classify" / "classify.ino").exists()
    ran("gcc", "-std=gnu11", "-c", *(root / "src").glob("*.c"), cwd=tmp_path)


def test_written_again_it_is_the_same_and_replaces_the_old_one(digits_run: Path, tmp_path: Path) -> None:
    for _ in range(2):
        export_run(digits_run, tmp_path, formats=["c"])
        content = {path.name: path.read_bytes() for path in (tmp_path / "c").iterdir()}
        (tmp_path / "c" / "stale.c").write_text("", encoding="utf-8")
    export_run(digits_run, tmp_path, formats=["c"])
    assert {path.name: path.read_bytes() for path in (tmp_path / "c").iterdir()} == content
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "report.json", "report.md"]
