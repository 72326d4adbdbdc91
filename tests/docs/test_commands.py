"""Commands of the documentation: all of them are understood by the real parsers, the quick start really runs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.docs.pages import PAGES, ROOT, commands

from bitedge.cli import main as command_line
from bitedge.cli.verbs import VERBS
from bitedge.train import load_run

DOCUMENTED = [(page.relative_to(ROOT).as_posix(), words) for page in PAGES for words in commands(page)]
UNDERSTOOD = 77  # no exit code of the command line's own
TABLE_ROW = ("ok", "FAILED")  # of the benchmark's output, which begins with the engine's name


def test_pages_have_commands() -> None:
    assert len(DOCUMENTED) > 20


@pytest.mark.parametrize(("page", "words"), DOCUMENTED, ids=[f"{page}: {' '.join(w)}" for page, w in DOCUMENTED])
def test_documented_command_is_understood(page: str, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), flags=re.M), words[1]
        return
    if words[1] in TABLE_ROW:
        return
    verb = {verb.name: verb for verb in VERBS}[words[1]]
    monkeypatch.setattr(command_line.load(verb), "run", lambda args: UNDERSTOOD)
    assert command_line.main(words[1:]) == UNDERSTOOD


@pytest.mark.slow
def test_quick_start_of_the_readme(
    digits_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(digits_run, "run", ignore=shutil.ignore_patterns("export"))
    images, _ = load_run("run").evaluation(limit=1)
    Image.fromarray(np.asarray(images[0])).save("photo.jpg")
    ran = []
    for words in commands(ROOT / "README.md"):
        if words[0] != "bitedge" or words[1] in ("serve", "pipeline", "bench"):
            continue  # they have tests of their own, and take long or do not end
        if words[1] == "train":
            words = [*words, "--resume"]  # the run of this session, which is the same command's
        assert command_line.main(words[1:]) == 0, (words, capsys.readouterr().err)
        ran.append(words[1])
    assert {"train", "export", "verify", "predict", "doctor"} <= set(ran)
