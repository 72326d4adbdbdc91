"""ONNX files: every form gives what onnxruntime gives, and what cannot be read is refused in one sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper
from tests.importers.onnx_forms import FORMS, save

from bitedge.export import ExportError, import_model
from bitedge.export.ir import ops
from bitedge.export.verify.golden import golden_input
from bitedge.runtime import Model

Numbers = dict[str, NDArray[np.generic]]


@pytest.mark.parametrize("form", FORMS)
def test_a_file_answers_as_onnxruntime_does(form: str, tmp_path: Path) -> None:
    write, binary = FORMS[form]
    write(tmp_path / "network.onnx")
    network = import_model(tmp_path / "network.onnx")
    assert sum(isinstance(node.op, ops.BinaryConv2d) for node in network.graph.nodes) == binary
    report = network.export(tmp_path / "out", formats=["gguf", "onnx"])
    assert not report.failures
    assert all(row["bits_differing"] == 0 for row in report.proof["files"].values())
    images = golden_input(network.graph.input, 99, 4)
    expected = network.reference.run(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))
    found = Model(tmp_path / "out" / "model.gguf").run(images)
    assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()


def test_a_sign_that_gives_0_at_0_is_listed_and_refused_where_a_0_occurs(tmp_path: Path) -> None:
    FORMS["torch, sign"][0](tmp_path / "network.onnx")
    report = import_model(tmp_path / "network.onnx").export(tmp_path / "out", formats=["gguf"])
    assert set(report.signs_at_zero.values()) == {0}
    assert "onnxruntime's sign of exactly 0 is 0" in report.text()
    rng = np.random.default_rng(0)
    weights = (rng.integers(0, 2, (8, 3, 1, 1)) * 2 - 1).astype(np.float32)
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Sign", ["r"], ["s"]),
        helper.make_node("Conv", ["s", "w"], ["c"]),
        helper.make_node("ReduceMean", ["c"], ["y"], axes=[2, 3], keepdims=0),
    ]
    save(tmp_path / "zeros.onnx", nodes, {"w": weights}, [1, 3, 8, 8])
    with pytest.raises(ExportError, match=r"exactly 0 in .* places, where onnxruntime's sign"):
        import_model(tmp_path / "zeros.onnx").export(tmp_path / "out", formats=["gguf"])


def test_a_wrong_file_names_the_engine_and_the_first_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FORMS["same padding"][0](tmp_path / "network.onnx")
    network = import_model(tmp_path / "network.onnx")
    right = network.reference.run
    monkeypatch.setattr(network.reference, "run", lambda images: right(images) + 1)
    report = network.export(tmp_path / "out", formats=["gguf"])
    assert "did not answer as onnxruntime does" in report.failures["gguf"]
    assert not (tmp_path / "out" / "model.gguf").exists()


_REFUSED: dict[str, tuple[list[onnx.NodeProto], str]] = {
    "operator": ([helper.make_node("Erf", ["x"], ["y"])], "the operator Erf is not supported"),
    "integers": (
        [helper.make_node("QuantizeLinear", ["x", "one"], ["q"]), helper.make_node("Cast", ["q"], ["y"], to=1)],
        "int8 quantization is not read",
    ),
    "mode": ([helper.make_node("Pad", ["x", "pads"], ["y"], mode="reflect")], "padding mode 'reflect'"),
    "shapes": ([helper.make_node("Conv", ["x", "wide"], ["y"])], "does not fit its inputs"),
    "missing": ([helper.make_node("Relu", ["nothing"], ["y"])], "not a valid ONNX file|nothing makes"),
    "constant": ([helper.make_node("Identity", ["one"], ["y"])], "does not depend on its image"),
    "map": ([helper.make_node("Relu", ["x"], ["y"])], "must be one vector per image"),
}


@pytest.mark.parametrize("case", _REFUSED)
def test_what_cannot_be_read_is_refused_in_one_sentence(case: str, tmp_path: Path) -> None:
    nodes, message = _REFUSED[case]
    constants: Numbers = {
        "one": np.array(1, np.float32),
        "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64),
        "wide": np.ones((4, 5, 3, 3), np.float32),
    }
    save(tmp_path / "network.onnx", nodes, constants, [1, 3, 8, 8])
    with pytest.raises(ExportError, match=message) as refusal:
        import_model(tmp_path / "network.onnx").captured()
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ([1, 3, 2**20, 2**20], "too large to be real"),
        ([1, 3, "H", "W"], "whose sizes but N are fixed"),
        ([1, 3, 8], "whose sizes but N are fixed"),
    ],
)
def test_an_absurd_image_is_refused(entry: list[int | str], message: str, tmp_path: Path) -> None:
    save(tmp_path / "network.onnx", [helper.make_node("Relu", ["x"], ["y"])], {}, entry)
    with pytest.raises(ExportError, match=message):
        import_model(tmp_path / "network.onnx")
