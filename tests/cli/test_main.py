"""The command line as a whole: its verbs, its messages, its exit codes."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from bitedge.cli import main as command
from bitedge.cli.output import emit, table
from bitedge.cli.verbs import VERBS, Verb


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "bitedge.cli", *words], capture_output=True, text=True, check=False)


def test_verbs_are_the_documented_ones() -> None:
    names = "models train eval export import verify inspect bench predict serve pipeline doctor"
    assert [verb.name for verb in VERBS] == names.split()


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_every_verb_has_help_and_json(verb: Verb, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        command.main([verb.name, "--help"])
    assert stop.value.code == 0
    assert "--json" in capsys.readouterr().out


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_an_unknown_option_names_the_nearest(verb: Verb, capsys: pytest.CaptureFixture[str]) -> None:
    needed = {"import": ["file", "--out", "folder"], "predict": ["model", "image"], "pipeline": ["--recipe", "digits"]}
    given = ["target"] if verb.name in ("inspect", "export", "verify", "eval") else needed.get(verb.name, [])
    assert command.main([verb.name, *given, "--jsn"]) == 2
    error = capsys.readouterr().err
    assert "there is no option --jsn (did you mean --json?)" in error
    assert error.count("\n") == 1


def test_unknown_verb_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["exprt"]) == 2
    assert capsys.readouterr().err == "bitedge: there is no verb exprt (did you mean export?); see bitedge --help\n"


def test_no_verb_prints_the_usage_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([]) == 2
    assert "usage: bitedge VERB" in capsys.readouterr().out


def test_version_is_the_installed_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--version"]) == 0
    assert capsys.readouterr().out == f"bitedge {command.version()}\n"


def test_help_loads_no_framework() -> None:
    code = (
        "import sys; from bitedge.cli.main import main; main(['--help']); main(['nonsense']);"
        "sys.exit(bool({'torch', 'tensorflow', 'numpy', 'PIL', 'fastapi'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("words", "joined"),
    [
        (["--json", "model.gguf", "a.png"], ["--json=-", "model.gguf", "a.png"]),
        (["x", "--json", "r.json"], ["x", "--json=r.json"]),
        (["--json"], ["--json=-"]),
        (["--json=r.json", "b.json"], ["--json=r.json", "b.json"]),
    ],
)
def test_json_swallows_no_other_argument(words: list[str], joined: list[str]) -> None:
    assert command.join_json(words) == joined


def verb_that_raises(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(args: argparse.Namespace) -> int:
        raise error

    module = SimpleNamespace(__doc__="A verb.", add_arguments=lambda parser: None, run=fail)
    monkeypatch.setattr(command, "load", lambda verb: module)


class Refusal(ValueError):
    bad_input = True


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (Refusal("expected a, got b"), 2, "bitedge eval: expected a, got b\n"),
        (
            FileNotFoundError(2, "No such file or directory", "x.bin"),
            2,
            "bitedge eval: x.bin: No such file or directory\n",
        ),
        (OSError(28, "No space left on device"), 2, "bitedge eval: No space left on device\n"),
        (KeyboardInterrupt(), 130, "bitedge eval: interrupted\n"),
        (
            ModuleNotFoundError("No module named 'torch'", name="torch"),
            2,
            "bitedge eval: needs torch, which is not installed; run: pip install 'bitedge[train]'\n",
        ),
        (
            ModuleNotFoundError("No module named 'larq_compute_engine.x'", name="larq_compute_engine.x"),
            2,
            "bitedge eval: needs larq_compute_engine, which is not installed; run: pip install 'bitedge[tflite]'\n",
        ),
    ],
)
def test_errors_become_one_line_and_a_code(
    error: BaseException, code: int, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    verb_that_raises(monkeypatch, error)
    assert command.main(["eval"]) == code
    assert capsys.readouterr().err == message


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    verb_that_raises(monkeypatch, ValueError("not the caller's fault"))
    with pytest.raises(ValueError, match="not the caller's fault"):
        command.main(["eval"])


def test_emit_writes_text_json_or_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    emit(argparse.Namespace(json=None), {"a": 1}, "text")
    emit(argparse.Namespace(json="-"), {"a": 1}, "text")
    emit(argparse.Namespace(json=str(tmp_path / "r.json")), {"a": 1}, "text")
    assert capsys.readouterr().out == 'text\n{\n  "a": 1\n}\ntext\n'
    assert json.loads((tmp_path / "r.json").read_text()) == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]


def test_table_sets_numbers_flush_right() -> None:
    assert table(("name", "ms"), [("a", 1.5), ("bb", 10)]) == "name   ms\n----  ---\na     1.5\nbb     10"


def test_doctor_reports_the_kernels_as_json() -> None:
    done = run("doctor", "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert sum(kernel["chosen"] for kernel in facts["kernels"]) == 1
    scalar = next(kernel for kernel in facts["kernels"] if kernel["name"] == "scalar")
    assert scalar["built"] is scalar["supported"] is True
    assert facts["extras"]["train"]["torch"] is not None


def test_doctor_prints_a_table() -> None:
    done = run("doctor")
    assert done.returncode == 0, done.stderr
    assert "scalar" in done.stdout
    assert "supported" in done.stdout
