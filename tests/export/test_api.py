"""`bitedge.export.export`: artifacts, report and options for a module in memory."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.export.small_networks import GRID, OFF_GRID, UserGrouped, UserResidual, enliven
from torch import nn

from bitedge.export import ExportError, export
from bitedge.export.capture.capture import trace
from bitedge.export.formats.formats import FORMATS, choose
from bitedge.runtime import Model
from bitedge.train.models import BinaryNet

LABELS = [f"class {number}" for number in range(10)]


@pytest.fixture(scope="module")
def images() -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (16, 32, 32, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def residual(images: NDArray[np.uint8]) -> nn.Module:
    torch.manual_seed(0)
    return enliven(UserResidual(), images, GRID)


def test_everything_is_written_and_the_core_answers_as_torch(
    residual: nn.Module, images: NDArray[np.uint8], tmp_path: Path
) -> None:
    training = {"seed": 3, "accuracy": 0.5}
    report = export(
        residual, (1, 3, 32, 32), tmp_path, formats=["gguf"], labels=LABELS, preprocessing=GRID, training=training
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.gguf", "report.json", "report.md"]
    assert report.sizes == {"model.gguf": (tmp_path / "model.gguf").stat().st_size}
    assert json.loads((tmp_path / "report.json").read_text()) == json.loads(json.dumps(report.as_dict()))
    model = Model(tmp_path / "model.gguf")
    model.check()
    assert model.labels == tuple(LABELS)
    assert model.preprocessing == GRID
    assert model.training == training
    expected = trace(residual, (3, 32, 32), preprocessing=GRID).run(images)
    np.testing.assert_allclose(model.run(images), expected, atol=1e-3 * np.abs(expected).max())


def test_a_module_without_preprocessing_takes_floats(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    export(network, torch.zeros(1, 2, 5, 6), tmp_path, formats=["gguf"], name="small")
    model = Model(tmp_path / "model.gguf")
    assert (model.name, model.input_kind, model.input_shape) == ("small", "float32", (5, 6, 2))
    x = np.random.default_rng(0).normal(0, 1, (4, 5, 6, 2)).astype(np.float32)
    with torch.no_grad():
        expected = network(torch.from_numpy(x.transpose(0, 3, 1, 2).copy())).numpy()
    np.testing.assert_allclose(model.run(x), expected, rtol=1e-5, atol=1e-6)


def test_report_accounts_for_every_parameter(residual: nn.Module, tmp_path: Path) -> None:
    report = export(residual, (3, 32, 32), tmp_path, formats=["gguf"], preprocessing=GRID)
    held = sum(p.numel() for p in residual.parameters())
    held += sum(b.numel() for name, b in residual.named_buffers() if "running" in name)
    assert report.totals()["parameters"] == held
    assert report.bytes_before == 4 * held
    rows = {row.layer: row for row in report.layers}
    binary = rows["conv2"]
    assert (binary.operator, binary.precision, binary.shape) == ("binary_conv2d", "binary", (16, 16, 32))
    assert binary.macs == 16 * 16 * 32 * 9 * 16
    assert binary.bytes_after == 32 * 9 * 8 + 2 * 4 * 32
    assert rows["stem"].why == "float weights"
    assert rows["stem"].absorbed == ("stem_norm", "relu")
    assert report.compression > 1


def test_report_reads_well(residual: nn.Module, tmp_path: Path) -> None:
    report = export(residual, (3, 32, 32), tmp_path, formats=["gguf"], preprocessing=GRID)
    for text in (report.text(), report.markdown()):
        assert "stem + stem_norm + relu" in text
        assert "times smaller" in text
        assert "model.gguf:" in text
    assert (tmp_path / "report.md").read_text() == report.markdown()


@pytest.mark.parametrize(
    ("preprocessing", "options", "reason"),
    [
        (OFF_GRID, {}, r"the pixels are not on the grid"),
        (GRID, {"first_padding": 1, "pad_value": 1}, "its input is not binarized"),
    ],
)
def test_strict_names_the_layer_that_would_stay_float(
    preprocessing: dict[str, object], options: dict[str, int], reason: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    network = BinaryNet(width=4, **options)  # type: ignore[arg-type]
    report = export(network, (3, 32, 32), tmp_path, formats=["gguf"], preprocessing=preprocessing)
    assert [row.layer for row in report.stayed_float()] == ["conv1"]
    assert "trained binary, but stays float: conv1" in report.text()
    folder = tmp_path / "strict"
    with pytest.raises(ExportError, match=f"strict: trained binary, but would stay float: conv1 .*{reason}"):
        export(network, (3, 32, 32), folder, formats=["gguf"], preprocessing=preprocessing, strict=True)
    assert not folder.exists()


def test_strict_accepts_a_network_that_is_binary_throughout(images: NDArray[np.uint8], tmp_path: Path) -> None:
    torch.manual_seed(0)
    report = export(
        enliven(UserGrouped(), images, GRID), (3, 32, 32), tmp_path, formats=["gguf"], preprocessing=GRID, strict=True
    )
    assert report.totals()["macs_float"] == 0


def test_half_weights_save_bytes_and_tell_what_they_cost(
    residual: nn.Module, images: NDArray[np.uint8], tmp_path: Path
) -> None:
    labels = trace(residual, (3, 32, 32), preprocessing=GRID).run(images).argmax(axis=1)
    full = export(residual, (3, 32, 32), tmp_path / "full", formats=["gguf"], preprocessing=GRID)
    half = export(
        residual,
        (3, 32, 32),
        tmp_path / "half",
        formats=["gguf"],
        preprocessing=GRID,
        fp16=True,
        evaluation=(images, labels),
    )
    saved = full.sizes["model.gguf"] - half.sizes["model.gguf"]
    assert saved > 0
    assert half.half is not None
    assert half.half["bytes_saved"] == saved
    assert half.half["accuracy_fp32"] == 1.0
    assert half.half["images"] == 16
    assert "points) on 16 images" in half.text()
    Model(tmp_path / "half" / "model.gguf").check()


def test_half_weights_without_images(residual: nn.Module, tmp_path: Path) -> None:
    report = export(residual, (3, 32, 32), tmp_path, formats=["gguf"], preprocessing=GRID, fp16=True)
    assert "accuracy not measured" in report.text()


def test_wrong_labels_are_refused(residual: nn.Module, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="expected one label per output, got 2 labels for 10 outputs"):
        export(residual, (3, 32, 32), tmp_path, formats=["gguf"], labels=["a", "b"], preprocessing=GRID)


def test_formats_are_chosen_by_name() -> None:
    chosen, skipped = choose(["gguf"])
    assert [row.name for row in chosen] == ["gguf"]
    assert skipped == {}
    with pytest.raises(ExportError, match="there is no format 'pkl'; the formats are gguf"):
        choose(["gguf", "pkl"])
    with pytest.raises(ExportError, match="no format was asked for"):
        choose([])


def test_a_format_whose_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from bitedge.export.formats import formats

    rows = (*FORMATS, replace(FORMATS[0], name="ghost", packages=("no_such_package",), extra="ghosts"))
    monkeypatch.setattr(formats, "FORMATS", rows)
    chosen, skipped = choose(None)
    assert "ghost" not in [row.name for row in chosen]
    assert skipped["ghost"] == "needs no_such_package: pip install 'bitedge[ghosts]'"
    with pytest.raises(ExportError, match="the format 'ghost' needs no_such_package"):
        choose(["ghost"])


def test_format_files_and_names_are_unique() -> None:
    assert len({row.name for row in FORMATS}) == len(FORMATS) == len({row.file_name for row in FORMATS})
