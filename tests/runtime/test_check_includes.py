"""The includes of the C++ core go one way, and the check of it finds one that does not."""

import importlib.util
from pathlib import Path
from types import ModuleType

RUNTIME = Path(__file__).parents[2] / "runtime"


def check_includes() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_includes", RUNTIME / "tools/check_includes.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_includes_go_one_way() -> None:
    assert check_includes().defects(RUNTIME) == []


def test_an_include_the_wrong_way_is_found(tmp_path: Path) -> None:
    (tmp_path / "src/base").mkdir(parents=True)
    (tmp_path / "src/stray.h").write_text("")
    (tmp_path / "src/base/text.h").write_text('#include <string>\n#include "base/error.h"\n#include "graph/graph.h"\n')
    found = check_includes().defects(tmp_path)
    assert found[0] == "src/base/text.h includes from graph/"
    assert found[1].startswith("src/stray.h is in none of base, file")
