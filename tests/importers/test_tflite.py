"""LceBconv2d with every option against Larq Compute Engine's own interpreter; 16 cases, or BITEDGE_EXAMPLES of them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.importers.lce_files import Case, draw, write

from bitedge.export import ExportError, import_model
from bitedge.export.importers.tflite.operators import beside
from bitedge.export.ir import ops

EXAMPLES = int(os.environ.get("BITEDGE_EXAMPLES", "16"))
pytest.importorskip("larq_compute_engine")


@pytest.mark.parametrize("seed", range(EXAMPLES))
def test_a_binary_layer_gives_what_its_engine_gives(seed: int, tmp_path: Path) -> None:
    case = draw(seed)
    write(case, tmp_path / "layer.tflite")
    network = import_model(tmp_path / "layer.tflite")
    images = np.random.default_rng(seed).normal(size=(2, case.inputs, *case.size)).astype(np.float32)
    theirs = network.reference.tensors(images, ["product"])["product"]
    found: list[torch.Tensor] = []
    network.module.get_submodule("product").register_forward_hook(lambda _m, _x, y: found.append(y))
    with torch.no_grad():
        network.module(torch.from_numpy(images))
    ours = found[0].numpy()
    if case.zero_padded:
        assert np.abs(ours - theirs).max() <= 1e-5 * np.abs(theirs).max(), case
    else:
        assert np.array_equal(ours, theirs), case


@pytest.mark.parametrize("seed", range(0, EXAMPLES, 4))
def test_an_imported_binary_layer_gives_every_bit_in_the_core(seed: int, tmp_path: Path) -> None:
    case = draw(seed)
    write(case, tmp_path / "layer.tflite")
    network = import_model(tmp_path / "layer.tflite")
    report = network.export(tmp_path / "out", formats=["gguf"])
    assert not report.failures, (case, report.failures)
    assert any(isinstance(node.op, ops.BinaryConv2d) for node in network.graph.nodes)
    assert report.proof["files"]["model.gguf"]["bits_differing"] == 0


def test_a_vector_per_image_stands_beside_a_map() -> None:
    maps = torch.zeros(2, 3, 4, 4)
    vector = torch.arange(6.0).reshape(2, 3)
    assert torch.equal(maps + beside(vector, maps), maps + vector[:, :, None, None])
    assert beside(vector[0], maps).shape == beside(vector[:1], maps).shape == (1, 3, 1, 1)
    with pytest.raises(ExportError, match="only one number per channel"):
        beside(torch.zeros(4, 3), maps)


def test_zero_padding_that_the_engine_gets_wrong_is_refused(tmp_path: Path) -> None:
    case = Case(1, (2, 2), 32, 32, (3, 3), (1, 1), (1, 1), True, 0, 0, False, False)
    write(case, tmp_path / "layer.tflite")
    with pytest.raises(ExportError, match="smaller than its window"):
        import_model(tmp_path / "layer.tflite")


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "layer.tflite").write_bytes(b"not a flatbuffer at all")
    with pytest.raises(ExportError, match="is not a TFLite file"):
        import_model(tmp_path / "layer.tflite")
    with pytest.raises(ExportError, match=r"expected a file that ends in \.onnx or \.tflite"):
        import_model(tmp_path / "layer.h5")
