"""The programs in C and C++ of docs/on-device.md, built as they stand against the library of this package."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.docs.pages import ROOT, blocks
from tests.runtime.golden_inputs import with_golden
from tests.runtime.packed_file import small_model

from bitedge.runtime.library import find_library

COMPILERS = {"c": ["cc", "-std=c11"], "cpp": ["c++", "-std=c++17"]}


@pytest.mark.parametrize("language", COMPILERS)
def test_the_program_of_the_page_runs(tmp_path: Path, language: str) -> None:
    if shutil.which(COMPILERS[language][0]) is None:
        pytest.skip("no compiler")
    (program,) = blocks(ROOT / "docs" / "on-device.md", language)
    source = tmp_path / f"program.{language}"
    source.write_text(program)
    library = find_library()
    words: list[str | Path] = [
        *COMPILERS[language],
        source,
        f"-I{ROOT / 'runtime' / 'include'}",
        library,
        f"-Wl,-rpath,{library.parent}",
    ]
    subprocess.run([*words, "-o", tmp_path / "program"], check=True)
    model = tmp_path / "model.gguf"
    model.write_bytes(with_golden(small_model()).build())
    done = subprocess.run([tmp_path / "program", model], capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) >= 1
    assert float(done.stdout.split()[-1]) != 0
    refused = subprocess.run([tmp_path / "program", source], capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "not a packed model" in refused.stderr
