"""What importing a package may load."""

from __future__ import annotations

import subprocess
import sys

import pytest

FRAMEWORKS = ("torch", "tensorflow", "larq_compute_engine", "onnx", "onnxruntime")


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("bitedge.runtime", (*FRAMEWORKS, "PIL", "fastapi")),
        ("bitedge.serve", FRAMEWORKS),
        ("bitedge.serve.app", FRAMEWORKS),
        ("bitedge.serve.inference.preprocessing", (*FRAMEWORKS, "fastapi")),
        ("bitedge.cli.main", (*FRAMEWORKS, "numpy", "PIL", "fastapi")),
        ("bitedge.cli.predict", (*FRAMEWORKS, "PIL", "fastapi")),
    ],
)
def test_import_is_light(module: str, forbidden: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print(*sorted(set({forbidden!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""


def test_bitedge_is_a_namespace() -> None:
    import bitedge

    assert getattr(bitedge, "__file__", None) is None
