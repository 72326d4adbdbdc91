"""The commands and scripts of docs/import.md, as they stand, on small files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.pages import ROOT, blocks, commands
from tests.importers.lce_files import draw, write
from tests.importers.onnx_forms import dense

from bitedge.cli.main import main
from bitedge.runtime import Model

PAGE = ROOT / "docs" / "import.md"
LESS = {"bench": ["--rounds", "1", "--engines", "bitedge"], "import": ["--formats", "gguf"]}


@pytest.mark.slow
def test_commands_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("larq_compute_engine")
    monkeypatch.chdir(tmp_path)
    write(draw(1), Path("quicknet.tflite"))
    dense(Path("network.onnx"))
    documented = commands(PAGE)
    assert [words[1] for words in documented] == ["import", "import", "bench"]
    for words in documented:
        assert main([*words[1:], *LESS[words[1]]]) == 0, words


@pytest.mark.slow
def test_the_module_of_a_paper_becomes_bits(tmp_path: Path) -> None:
    _, script = blocks(PAGE, "python")
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sum("binary" in node.op for node in Model(tmp_path / "out" / "model.gguf").nodes) == 1
    assert "FAILED" not in done.stdout
