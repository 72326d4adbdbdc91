"""`bitedge-bench` as a user calls it: columns, JSON, self-check, and what it refuses."""

from __future__ import annotations

import hashlib
import json
import struct
import subprocess
import sysconfig
from pathlib import Path

import pytest

from bitedge.runtime import available_kernels

TOOL = Path(sysconfig.get_path("scripts")) / "bitedge-bench"
HEADER = "engine status threads batch size kB top-1 % ms p50 ms p99 images/s speed-up"
COLUMNS = (
    *("engine", "net", "threads", "batch", "status", "agrees", "ms", "images_per_s", "bytes", "peak_rss"),
    *("load_ms", "cold_ms", "top1", "layers", "reason"),
)
SMALL = {
    "birealnet18": ["--width", "16", "--image-size", "64"],
    "xnornet": ["--width", "48", "--image-size", "99"],
    "binarynet": [],
}


def call(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([TOOL, *map(str, words)], capture_output=True, text=True, timeout=120)


def test_a_model_is_checked_and_measured(digits_model: Path) -> None:
    done = call(digits_model, "--threads", "1,2", "--batch", "1,3", "--runs", "5", "--profile", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [(row["threads"], row["batch"]) for row in document["rows"]] == [(1, 1), (1, 3), (2, 1), (2, 3)]
    for row in document["rows"]:
        assert tuple(row) == COLUMNS
        assert (row["engine"], row["status"], row["agrees"]) == ("bitedge", "ok", True)
        assert 0 < row["ms"]["min"] <= row["ms"]["p50"] <= row["ms"]["p90"] <= row["ms"]["p99"]
        assert row["bytes"] == digits_model.stat().st_size
        assert row["images_per_s"] == pytest.approx(1e3 * row["batch"] / row["ms"]["p50"], rel=1e-6)
    layers = document["rows"][0]["layers"]
    assert sum(layer["macs"] for layer in layers) > 1e6
    for layer in layers:
        if layer["limit_gmacs_per_s"]:
            assert layer["share"] == pytest.approx(layer["gmacs_per_s"] / layer["limit_gmacs_per_s"], rel=1e-6)
    assert {"cpu", "machine", "cores", "system", "governor", "features", "kernels", "compiler"} <= set(document["host"])


def test_the_columns_are_those_of_bitedge_bench(digits_model: Path) -> None:
    lines = call(digits_model, "--runs", "2", "--kernels", "all").stdout.splitlines()
    assert lines[2].split() == HEADER.split()
    usable = [kernel.name for kernel in available_kernels() if kernel.built and kernel.supported]
    assert [line.split("  ")[0] for line in lines[3 : 4 + len(usable)]] == [
        "bitedge",
        *(f"bitedge {name}" for name in usable),
    ]


@pytest.mark.parametrize("net", SMALL)
def test_a_network_needs_no_file(net: str) -> None:
    done = call("--net", net, *SMALL[net], "--runs", "2", "--kernels", "all", "--json")
    assert done.returncode == 0, done.stderr
    assert {row["net"] for row in json.loads(done.stdout)["rows"]} == {net}


def test_a_wrong_answer_is_never_measured(digits_model: Path, tmp_path: Path) -> None:
    """Another golden seed asks other questions, so the stored answers are wrong; the checksum is made to fit."""
    content = bytearray(digits_model.read_bytes())
    key = b"bitedge.golden.seed"
    at = content.index(key) + len(key)
    kind, seed = struct.unpack_from("<IQ", content, at)
    assert kind == 10  # uint64
    struct.pack_into("<Q", content, at + 4, seed + 1000)
    key = b"bitedge.sha256"
    at = content.index(key) + len(key) + 12  # the type, and the length of the string
    content[at : at + 64] = b"0" * 64
    content[at : at + 64] = hashlib.sha256(content).hexdigest().encode()
    other = tmp_path / "model.gguf"
    other.write_bytes(content)
    done = call(other, "--runs", "2")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "golden vector 0" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--runs", "3"], "give a model.gguf or --net"),
        (["absent.gguf"], "cannot open"),
        ([__file__], "not a packed model"),
        (["--net", "resnet"], "binarynet, xnornet, birealnet18"),
        (["--net", "binarynet", "model.gguf"], "give a model.gguf or --net"),
        (["model.gguf", "--width", "16"], "go with --net"),
        (["--net", "binarynet", "--threads", "0"], "from 1 to 256"),
        (["--net", "binarynet", "--threads", "1,"], "from 1 to 256"),
        (["--net", "binarynet", "--runs", "many"], "--runs wants a whole number"),
        (["--net", "binarynet", "--runs"], "--runs wants a value"),
        (["--net", "binarynet", "--image-size", "4"], "too small"),
        (["--net", "binarynet", "--kernels", "mmx"], "scalar"),
        (["--net", "binarynet", "--fast"], "unknown argument"),
        (["kernels", "--fast"], "unknown argument"),
        (["kernels", "--rounds", "0"], "--rounds wants"),
        (["epilogues", "--fast"], "unknown argument"),
    ],
)
def test_bad_input_is_one_line(words: list[str], message: str) -> None:
    done = call(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_layers_of_floats_have_kernels_and_a_roofline() -> None:
    fast = next(row.name for row in available_kernels() if row.built and row.supported)
    done = call("kernels", "--rounds", "2", "--kernels", fast, "--json")
    rows = {row["layer"]: row for row in json.loads(done.stdout)["rows"]}
    for layer in ("depthwise 56x56x64", "groups of 4 28x28x128", "group_norm 28x28x128", "gate 28x28x128"):
        assert rows[layer]["kernel"].startswith(fast)
        assert rows[layer]["share"] is None or rows[layer]["share"] > 0


def test_epilogues_are_compared_in_turns() -> None:
    done = call("epilogues", "--rounds", "2", "--json")
    rows = json.loads(done.stdout)["rows"]
    assert {row["layer"] for row in rows} == {"56x56x64", "28x28x128", "14x14x256", "7x7x512"}
    assert all(row["times"] == pytest.approx(row["shifted_us"] / row["us"], rel=1e-3) for row in rows)


def test_help_names_every_option() -> None:
    text = call("--help").stdout
    for option in (
        "--threads",
        "--batch",
        "--runs",
        "--kernels",
        "--profile",
        "--json",
        "--net",
        "kernels",
        "epilogues",
        "host",
    ):
        assert option in text
