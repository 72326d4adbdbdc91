"""`bitedge bench` on a real model and real engine processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bitedge.cli.bench import engines, runner
from bitedge.cli.bench.runner import Job, Settings, agrees, measure_rows, reference_answer
from bitedge.cli.main import main
from bitedge.runtime import Model, available_kernels

Array = np.ndarray[Any, Any]
QUICK = ["--rounds", "1"]
COLUMNS = (
    *("engine", "net", "threads", "batch", "status", "agrees", "ms", "images_per_s", "bytes", "peak_rss"),
    *("load_ms", "cold_ms", "top1", "layers", "reason"),
)


def test_a_model_is_measured_and_agrees(digits_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report, chart, page = tmp_path / "r.json", tmp_path / "c.png", tmp_path / "t.md"
    words = ["bench", str(digits_model), *QUICK, "--threads", "1,2", "--batch", "1,3", "--profile"]
    assert main([*words, "--json", str(report), "--chart", str(chart), "--markdown", str(page)]) == 0
    document = json.loads(report.read_text())
    assert [(row["threads"], row["batch"]) for row in document["rows"]] == [(1, 1), (1, 3), (2, 1), (2, 3)]
    for row in document["rows"]:
        assert tuple(row) == COLUMNS
        assert row["status"] == "ok"
        assert row["agrees"] is True
        assert 0 < row["ms"]["min"] <= row["ms"]["p50"] <= row["ms"]["p90"] <= row["ms"]["p99"]
        assert row["peak_rss"] > 1 << 20
    assert sum(layer["macs"] for layer in document["rows"][0]["layers"]) > 1e6
    assert chart.read_bytes().startswith(b"\x89PNG")
    assert page.read_text().count("\n| bitedge |") == 4
    assert "GMAC/s" in capsys.readouterr().out


def test_every_kernel_on_request(digits_model: Path, tmp_path: Path) -> None:
    assert main(["bench", str(digits_model), *QUICK, "--kernels", "all", "--json", str(tmp_path / "r.json")]) == 0
    names = [row["engine"] for row in json.loads((tmp_path / "r.json").read_text())["rows"]]
    usable = [kernel.name for kernel in available_kernels() if kernel.built and kernel.supported]
    assert names == ["bitedge", *(f"bitedge {name}" for name in usable)]


def test_an_export_folder_names_peers_without_an_artifact(digits_model: Path, tmp_path: Path) -> None:
    alone = tmp_path / "export"
    alone.mkdir()
    (alone / "model.gguf").write_bytes(digits_model.read_bytes())
    assert main(["bench", str(alone), *QUICK, "--json", str(tmp_path / "r.json")]) == 0
    rows = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert [row["engine"] for row in rows] == [engine.name for engine in engines.ENGINES]
    assert {row["status"] for row in rows[1:]} == {"absent"}
    assert all(row["reason"] for row in rows[1:])


def test_a_gate_that_is_not_kept_fails(digits_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", str(digits_model), *QUICK, "--max-p99-ms", "1e-6"]) == 1
    assert "above --max-p99-ms" in capsys.readouterr().err


def measure(digits_model: Path, engine: engines.Engine, reference: Array | None = None) -> dict[str, Any]:
    images = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    if reference is None:
        reference = reference_answer(digits_model, images)
    return measure_rows([Job(engine, digits_model, 1, 1)], images, reference, Settings(rounds=1, round_seconds=0.01))[0]


def test_each_engine_has_the_accuracy_of_its_own_answers(digits_model: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (5, 32, 32, 3), dtype=np.uint8)
    answers = reference_answer(digits_model, images)
    labels = answers[2:].argmax(axis=1)
    labels[0] = (labels[0] + 1) % 10  # two of three are right
    job, settings = Job(engines.ENGINES[0], digits_model, 1, 1), Settings(rounds=1, round_seconds=0.01)
    row = measure_rows([job], images, answers[:2], settings, labels=labels)[0]
    assert row["agrees"] is True
    assert row["top1"] == pytest.approx(2 / 3)


def test_the_images_are_those_of_the_golden_vectors(digits_model: Path) -> None:
    from bitedge.cli.bench.measure import steady_images
    from bitedge.export.verify.folder import relower
    from bitedge.export.verify.golden import reference_golden

    model = Model(digits_model)
    golden = reference_golden(relower(digits_model.parent)[2])
    np.testing.assert_allclose(model.run(steady_images(model)), golden.output, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_tensorflow_lite_runs_the_same_network_in_floats(digits_model: Path, tmp_path: Path) -> None:
    words = ["bench", str(digits_model.parent), "--engines", "bitedge,tflite xnnpack", *QUICK]
    assert main([*words, "--json", str(tmp_path / "r.json")]) == 0
    rows = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert [(row["engine"], row["status"]) for row in rows] == [("bitedge", "ok"), ("tflite xnnpack", "ok")]
    assert rows[1]["bytes"] > 10 * rows[0]["bytes"]
    assert not (digits_model.parent / "model.float.tflite").exists()


def test_a_wrong_answer_is_marked(digits_model: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    wrong = reference_answer(digits_model, images)[:, ::-1]
    row = measure(digits_model, engines.ENGINES[0], wrong)
    assert row["status"] == "differs"
    assert row["agrees"] is False


def test_a_wrong_answer_fails_the_command(
    digits_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = reference_answer(digits_model, np.zeros((2, 32, 32, 3), np.uint8))
    monkeypatch.setattr("bitedge.cli.bench.measure.reference_answer", lambda *_: wrong)
    assert main(["bench", str(digits_model), *QUICK]) == 1
    printed = capsys.readouterr()
    assert "WRONG ANSWER" in printed.out
    assert printed.err.splitlines()[-1] == "bitedge bench: bitedge: the answer differs from the reference"


def test_a_peer_that_is_not_installed_is_named(
    digits_model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "onnxruntime.py").write_text("raise ModuleNotFoundError('none', name='onnxruntime')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    row = measure(digits_model, next(engine for engine in engines.ENGINES if engine.name == "onnxruntime"))
    assert (row["status"], row["reason"], row["ms"]) == ("missing", "pip install 'bitedge[onnx]'", None)


def test_a_failed_conversion_is_a_failed_row(
    digits_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bitedge.cli.bench.measure.make_float_tflite", lambda *_: "the converter said no")
    assert main(["bench", str(digits_model.parent), "--engines", "bitedge,tflite xnnpack", *QUICK]) == 1
    assert "tflite xnnpack: the converter said no" in capsys.readouterr().err


def test_a_profile_needs_the_native_tool(
    digits_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BITEDGE_BENCH", "/absent")
    assert main(["bench", str(digits_model), *QUICK, "--profile"]) == 2
    assert "BITEDGE_BENCH names /absent" in capsys.readouterr().err


def test_an_engine_that_cannot_open_its_file_fails_alone(digits_model: Path) -> None:
    row = measure(digits_model, next(engine for engine in engines.ENGINES if engine.name == "onnxruntime"))
    assert row["status"] == "failed"
    assert row["reason"]
    assert row["ms"] is None


def test_agreement_needs_shape_and_finite_numbers() -> None:
    reference = np.array([[0.0, 5.0]])
    assert agrees(reference + 0.004, reference, 1e-3)
    assert not agrees(reference + 0.006, reference, 1e-3)
    assert not agrees(np.array([[0.0, np.nan]]), reference, 1e-3)
    assert not agrees(np.zeros((1, 3)), reference, 1e-3)


def test_the_size_of_a_run_folder_is_that_of_its_weights(digits_run: Path) -> None:
    assert runner.size_of(digits_run) == (digits_run / "best.safetensors").stat().st_size


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give one model.gguf"),
        (["a", "b"], "give one model.gguf"),
        (["absent"], "absent"),
        (["--net", "resnet"], "invalid choice"),
        (["compare", "a.json"], "two reports"),
    ],
)
def test_bad_input_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [["--threads", "0"], ["--batch", "x"], ["--rounds", "0"], ["--engines", "larc"], ["--min-speedup", "torch"]],
)
def test_bad_options_are_one_line(words: list[str], digits_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", str(digits_model), *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_damaged_file_is_refused(digits_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.gguf").write_bytes(digits_model.read_bytes()[:-1])
    assert main(["bench", str(tmp_path / "model.gguf"), *QUICK]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_ctrl_c_ends_every_process(digits_model: Path) -> None:
    command = [sys.executable, "-m", "bitedge.cli", "bench", str(digits_model), "--rounds", "100000"]

    def listen_to_ctrl_c() -> None:  # a test run in the background of a shell is started with Ctrl-C ignored
        signal.signal(signal.SIGINT, signal.default_int_handler)

    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=listen_to_ctrl_c) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if line.startswith("measuring"):
                    break
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            assert children
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 130
            assert process.stderr.read().splitlines()[-1] == "bitedge bench: interrupted"
            time.sleep(0.1)
            assert not [child for child in children if Path(f"/proc/{child}").exists()]
        finally:
            process.kill()
