from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import httpx2 as httpx
import pytest

from bitedge.cli.main import main
from bitedge.runtime import boxed_models
from bitedge.serve.security.keys import KeyRing


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line with which the command refuses, after exit code 2."""
    assert main(["serve", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    return line


def test_bad_input_gets_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "no such folder" in refused(capsys, str(tmp_path / "nowhere"))
    assert "holds no model" in refused(capsys, str(tmp_path))
    assert "port: Input should be less than or equal to 65535" in refused(capsys, str(tmp_path), "--port", "99999")
    assert "did you mean --workers" in refused(capsys, str(tmp_path), "--worker", "2")
    assert "invalid choice" in refused(capsys, str(tmp_path), "--admin", "everyone")
    anything = (str(tmp_path), "--allow-empty", "--port", "0")
    assert "keys" in refused(capsys, *anything, "--keys-file", str(tmp_path / "keys"))


def test_a_damaged_model_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF and nothing more")
    assert "model.gguf" in refused(capsys, str(tmp_path))


def test_an_address_in_use_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        line = refused(capsys, str(tmp_path), "--allow-empty", "--port", port)
    assert f"cannot listen on 127.0.0.1 port {port}" in line


def test_a_new_key_can_be_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--new-key", "camera", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert KeyRing(text=made["line"]).authorize(made["key"], "infer").name == "camera"


def test_help_shows_every_option_with_its_default() -> None:
    command = [sys.executable, "-m", "bitedge.cli", "serve", "--help"]
    text = " ".join(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    for words in ("--host TEXT", "127.0.0.1", "--queue N", "(default: 128)", "--drain-seconds X"):
        assert words in text


def test_serving_loads_neither_torch_nor_tensorflow() -> None:
    code = "import sys, bitedge.serve.server; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not {"torch", "tensorflow", "onnxruntime", "bitedge.train", "bitedge.export"} & set(loaded)


def test_without_models_the_box_is_served() -> None:
    command = [sys.executable, "-m", "bitedge.cli", "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split(" on ")[-1].strip()
        listed = httpx.get(f"{url}/v1/models").json()
        process.terminate()
        assert process.wait(timeout=60) == 0
    assert {model["name"] for model in listed["models"]} == set(boxed_models())
