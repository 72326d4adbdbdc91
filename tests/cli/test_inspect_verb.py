"""`bitedge inspect`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from tests.runtime.packed_file import AFFINE, PackedFile, pack_bits, window

from bitedge.cli.main import main


def test_a_packed_file(digits_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "graph.svg"
    assert main(["inspect", str(digits_model), "--kernels", "--graph", str(picture)]) == 0
    text = capsys.readouterr().out
    for expected in (
        "uint8 32x32x3",
        "sha256",
        "image_conv2d",
        "norm9",
        "scalar",
        "trained digits",
        "resized to 32x32",
    ):
        assert expected in text
    root = ElementTree.parse(picture).getroot()
    assert len(root.findall("{http://www.w3.org/2000/svg}g")) == 13


def test_what_has_no_kernel_is_said_to_run_by_the_reference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = PackedFile.start((4, 4, 2))
    weight = {"weight": pack_bits(np.ones((2, 1, 1, 1))), "threshold": np.zeros(2, np.int32)}
    file.node("image_conv2d", [0], ["grouped"], weight, **window(groups=2), epilogue="threshold")
    file.node("elementwise", [1], ["last"], {}, **AFFINE)
    (path := tmp_path / "grouped.gguf").write_bytes(file.finish(2).build())
    assert main(["inspect", str(path), "--kernels"]) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "grouped" in line and "image_conv2d" in line]
    assert "reference" in row


def test_json(digits_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(digits_model), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["bytes"] == digits_model.stat().st_size
    assert [layer["op"] for layer in data["layers"]].count("binary_conv2d") == 8
    assert data["metadata"]["bitedge.preprocessing"]["size"] == [32, 32]
    assert data["macs"] == sum(layer["macs"] for layer in data["layers"])


def test_a_packed_file_needs_neither_torch_nor_gguf(digits_model: Path, tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules.update(torch=None, gguf=None, onnx=None, tensorflow=None);"
        "from bitedge.cli.main import main;"
        f"sys.exit(main(['inspect', {str(digits_model)!r}, '--kernels', '--graph', {str(tmp_path / 'g.svg')!r}]))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert (tmp_path / "g.svg").exists()


def test_an_onnx_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    weight = onnx.numpy_helper.from_array(np.ones((3, 2), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Relu", ["y"], ["z"])],
        "small",
        [helper.make_tensor_value_info("x", 1, ["N", 3])],
        [helper.make_tensor_value_info("z", 1, ["N", 2])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, {"labels": "a,b"})
    path = tmp_path / "small.onnx"
    onnx.save(model, str(path))
    assert main(["inspect", str(path)]) == 0
    text = capsys.readouterr().out
    assert "onnx, operators ai.onnx 17" in text
    assert "labels = a,b" in text
    assert main(["inspect", str(path), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["layers"][0] == {"name": "y", "op": "MatMul", "shape": "Nx2", "bytes": 24}
    assert data["inputs"] == [{"name": "x", "type": "float", "shape": "Nx3"}]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.gguf", b"GGUF", "model.gguf"),
        ("model.onnx", b"\xff\xff", "is not a valid ONNX file"),
        ("model.tflite", b"nothing here", "is not a TFLite file"),
        ("model.zip", b"PK", "expected a file that ends in .gguf, .onnx or .tflite"),
    ],
)
def test_other_files_are_refused(
    name: str, content: bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(content)
    assert main(["inspect", str(tmp_path / name)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_missing_file_and_a_wrong_picture_are_refused(
    digits_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(tmp_path / "none.gguf")]) == 2
    assert "no such file" in capsys.readouterr().err
    assert main(["inspect", str(digits_model), "--graph", str(tmp_path / "g.png")]) == 2
    assert "ends in .svg" in capsys.readouterr().err
