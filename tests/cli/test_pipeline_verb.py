"""The pipeline: what it skips, what it says when a stage fails, and one real run from images to a report."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from bitedge.cli.errors import CommandError
from bitedge.cli.main import main
from bitedge.cli.pipeline import NAMES, pipeline
from bitedge.cli.stages import Plan, Stage, StageFailed


class Recorder:
    """Stages that only note that they were called, in the place of the real ones."""

    def __init__(self, failing: str = "") -> None:
        self.called: list[str] = []
        self.failing = failing

    def stages(self) -> list[Stage]:
        return [Stage(name, name, lambda plan: "command", self.stage(name)) for name in NAMES]

    def stage(self, name: str) -> Any:
        def call(plan: Plan) -> Mapping[str, Any]:
            self.called.append(name)
            if name == self.failing:
                raise StageFailed("it broke")
            return {"made": name}

        return call


class Elements(HTMLParser):
    """Counts the elements of a page and gathers what they load; refuses tags that are not closed in order."""

    VOID = ("meta", "img", "br", "line", "polyline", "rect")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()
        self.sources: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] += 1
        self.sources += [value or "" for name, value in attrs if name in ("src", "href", "srcset")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def play(plan: Plan, recorder: Recorder | None = None, **options: Any) -> list[str]:
    recorder = recorder or Recorder()
    pipeline(plan, stages=recorder.stages(), say=lambda text: None, **options)
    return recorder.called


def test_stages_run_once_and_are_skipped_after(tmp_path: Path) -> None:
    plan = Plan("digits", tmp_path)
    assert play(plan) == list(NAMES)
    assert play(plan) == []


def test_until_stops_and_the_rest_follows_later(tmp_path: Path) -> None:
    plan = Plan("digits", tmp_path)
    assert play(plan, until="export") == ["train", "export"]
    assert play(plan) == ["verify", "bench", "report"]


def test_from_does_a_stage_and_all_after_it_again(tmp_path: Path) -> None:
    plan = Plan("digits", tmp_path)
    play(plan)
    assert play(plan, start="verify") == ["verify", "bench", "report"]
    assert play(plan, start="export", until="export") == ["export"]


def test_another_order_starts_anew(tmp_path: Path) -> None:
    play(Plan("digits", tmp_path))
    assert play(Plan("digits", tmp_path, overrides=("epochs=1",))) == list(NAMES)


def test_a_failed_stage_says_how_to_resume_and_resumes(tmp_path: Path) -> None:
    plan = Plan("digits", tmp_path)
    said: list[str] = []
    with pytest.raises(StageFailed):
        pipeline(plan, stages=Recorder("verify").stages(), say=said.append)
    assert (
        said[-1]
        == f"verify did not finish; to go on from here: bitedge pipeline --recipe digits --out {tmp_path} --from verify"
    )
    record = json.loads((tmp_path / "pipeline.json").read_text())
    assert record["stages"]["verify"] | {"seconds": 0} == {
        "status": "failed",
        "seconds": 0,
        "result": {"reason": "it broke"},
    }
    assert play(plan) == ["verify", "bench", "report"]


def test_from_after_until_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="--from bench comes after --until export"):
        play(Plan("digits", tmp_path), start="bench", until="export")


def test_a_damaged_record_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pipeline.json").write_text("{")
    with pytest.raises(CommandError, match="not a record of a pipeline"):
        play(Plan("digits", tmp_path))


@pytest.mark.parametrize("words", [["--recipe", "digit"], ["--recipe", "digits", "--from", "trane"], []])
def test_bad_input_is_one_line(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", *words, "--out", str(tmp_path / "out")]) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.slow
def test_a_trained_run_goes_all_the_way(digits_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(digits_run, tmp_path / "run", ignore=shutil.ignore_patterns("export"))
    words = ["pipeline", "--recipe", "digits", "--out", str(tmp_path), "--formats", "gguf"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "torch = core on 360 images: top-1 agreement 100.00 %" in out
    assert f"bitedge serve {tmp_path / 'export'}" in out
    record = json.loads((tmp_path / "pipeline.json").read_text())
    assert [stage["status"] for stage in record["stages"].values()] == ["done"] * 5
    assert record["stages"]["train"]["result"]["test"]["best"]["accuracy"] >= 0.97
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["stages"].keys() == record["stages"].keys()
    page = (tmp_path / "report.html").read_text()
    elements = Elements(page)
    assert elements.count["img"] == 12
    assert elements.count["svg"] >= 4
    assert all(source.startswith("data:") for source in elements.sources), "the report refers to nothing outside"
    accuracy = record["stages"]["train"]["result"]["test"]["best"]["accuracy"]
    for text in (f"{100 * accuracy:.2f} % of 360 test images", "same top-1", "bitedge train --recipe digits", "conv6"):
        assert text in page


def test_report_needs_the_stages_before_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "--recipe", "digits", "--out", str(tmp_path), "--from", "report"]) == 1
    assert "before train is done: run the pipeline with --from train" in capsys.readouterr().err
