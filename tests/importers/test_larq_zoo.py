"""Networks of Larq Zoo, converted by Larq's own tools; BITEDGE_LARQ_PYTHON names the Python that has them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from bitedge.export import import_model

PYTHON = os.environ.get("BITEDGE_LARQ_PYTHON")
NETWORKS = {
    "QuickNetSmall": 64,
    "QuickNet": 64,
    "BiRealNet": 128,
    "BinaryResNetE18": 128,
    "BinaryDenseNet28": 128,
}
"""Those that were seen to agree, and the side of their image."""


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(PYTHON is None, reason="BITEDGE_LARQ_PYTHON is not set: it takes minutes for each network")
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_answers_as_larq_compute_engine_does(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.tflite"
    script = Path(__file__).with_name("larq_zoo_file.py")
    subprocess.run([str(PYTHON), str(script), name, str(NETWORKS[name]), str(path)], check=True, capture_output=True)
    report = import_model(path).export(tmp_path / "out", formats=["gguf"])
    assert not report.failures
    assert report.stayed_float() == []
