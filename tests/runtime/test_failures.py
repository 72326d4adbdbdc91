"""Forks, limits and files that change: none may end a Python process. runtime/tests/failure_test.cpp has the C side."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.runtime.packed_file import AFFINE, PackedFile, pack_bits, small_model, window
from tests.runtime.random_models import random_images

from bitedge.runtime import Model, RuntimeFault

MIB = 1 << 20


def run_script(code: str, *words: str | Path) -> str:
    """Run a script that must end within a minute and well; returns what it prints."""
    command = [sys.executable, "-c", code, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(name="path")
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(small_model().build())
    return path


FORK = """
import os, sys, threading, numpy as np
from bitedge.runtime import Model
model = Model(sys.argv[1], threads=3)
other = model.context(2)
images = np.random.default_rng(0).integers(0, 256, (9, 6, 6, 3), dtype=np.uint8)
expected = model.run(images)
busy = sys.argv[2] == "busy"
stop = threading.Event()
def work():
    while not stop.is_set():
        model.run(images)
thread = threading.Thread(target=work)
if busy:
    thread.start()
for _ in range(20 if busy else 2):
    child = os.fork()
    if child == 0:
        same = np.array_equal(model.run(images), expected) and np.array_equal(other.run(images), expected)
        del other, model
        os._exit(0 if same else 3)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
if busy:
    thread.join()
assert np.array_equal(model.run(images), expected)
print("well")
"""


@pytest.mark.parametrize("state", ["idle", "busy"])
def test_a_model_works_on_both_sides_of_a_fork(path: Path, state: str) -> None:
    assert run_script(FORK, path, state) == "well\n"


def test_a_file_may_change_under_a_model(path: Path) -> None:
    images = random_images(small_model(), 3, 5)
    model = Model(path)
    expected = model.run(images)
    path.write_bytes(b"")
    assert np.array_equal(model.run(images), expected)
    assert np.array_equal(model.context().run(images), expected)


def wide_model(nodes: int) -> bytes:
    """A few kilobytes that describe many 1x1 convolutions of large maps."""
    file = PackedFile.start((2048, 2048, 1))
    weight = pack_bits(np.ones((1, 1, 1, 1)))
    threshold = {"weight": weight, "threshold": np.zeros(1, np.int32)}
    file.node("image_conv2d", [0], ["v1"], threshold, **window(), epilogue="threshold")
    for i in range(1, nodes):
        file.node("binary_conv2d", [i], [f"v{i + 1}"], threshold, **window(), pad_value=1, epilogue="threshold")
    file.node("elementwise", [nodes], ["last"], {}, **AFFINE)
    file.node(
        "avg_pool2d",
        [nodes + 1],
        ["mean"],
        {},
        kernel=(2048, 2048),
        stride=(1, 1),
        pads=(0,) * 4,
        count_include_pad=False,
    )
    return file.finish(nodes + 2).build()


LOAD = """
import resource, sys
from bitedge.runtime import Model
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    Model(sys.argv[1])
except MemoryError as error:
    print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("nodes", [32, 300])
def test_a_small_file_does_not_make_a_large_process(tmp_path: Path, nodes: int) -> None:
    path = tmp_path / "wide.gguf"
    path.write_bytes(wide_model(nodes))
    *message, grown = run_script(LOAD, path).splitlines()
    assert "more than the limit of" in message[0]
    assert message[0].endswith("raise memory_limit")
    assert int(grown) < 300 * 1024


def test_long_names_do_not_make_a_large_process(tmp_path: Path) -> None:
    file = PackedFile.start((1, 1, 1), kind="float32")
    file.keys["bitedge.input.name"] = ("string", "n" * MIB)
    for i in range(600):
        file.node("softmax", [0], [f"v{i}"], {})
    path = tmp_path / "names.gguf"
    path.write_bytes(file.finish(1).build())
    *message, grown = run_script(LOAD, path).splitlines()
    assert "raise memory_limit" in message[0]
    assert int(grown) < 800 * 1024


def test_a_limit_holds_for_the_model_and_for_its_runs(path: Path) -> None:
    images = random_images(small_model(), 3, 200)
    with pytest.raises(MemoryError, match=r"needs at least \d+ bytes of memory, more than the limit of 3000"):
        Model(path, memory_limit=3000)
    model = Model(path, memory_limit=MIB)
    expected = Model(path).run(images)
    assert np.array_equal(model.run(images), expected)
    small = model.context(memory_limit=5000)
    assert np.array_equal(small.run(images), expected)
    assert 0 < small.memory.arena <= 5000
    keeping = model.context(keep_values=True, memory_limit=50000)
    for _ in range(2):
        keeping.activations(images[:1])
        with pytest.raises(MemoryError, match="raise memory_limit"):
            keeping.activations(images)
    with pytest.raises(MemoryError, match="raise memory_limit"):
        model.context(memory_limit=10).run(images)


@pytest.mark.parametrize("limit", [0, -1, 2**64, 1.5, True, "1 GB"])
def test_a_limit_that_is_none_is_refused(path: Path, limit: int) -> None:
    with pytest.raises(RuntimeFault, match="memory_limit: expected a number of bytes, at least 1, got"):
        Model(path, memory_limit=limit)


def test_memory_is_reported(path: Path) -> None:
    model = Model(path)
    assert model.memory.model > model.file_bytes / 2
    assert model.memory.arena == 0
    model.run(random_images(small_model(), 1, 1))
    assert model.memory.arena > model.memory.scratch > 0


def test_spinning_can_be_turned_off(path: Path) -> None:
    images = random_images(small_model(), 2, 3)
    model = Model(path)
    with pytest.raises(RuntimeFault, match="spin_microseconds: expected a whole number from 0 to 1000000, got -1"):
        model.context(2, spin_microseconds=-1)
    lazy = model.context(2, spin_microseconds=0)
    assert np.array_equal(lazy.run(images), model.run(images))
