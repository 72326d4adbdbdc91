"""The TFLite file: what Larq Compute Engine makes of a graph, and that nothing stays float in silence.

12 random networks in `make test`; the long run: BITEDGE_EXAMPLES=60 .venv/bin/python -m pytest
tests/export/formats/test_tflite.py -k random
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.export.padded_graphs import WINDOWS, bundle, padded_graph, padded_images
from tests.export.random_networks import network
from tests.export.small_networks import GRID, OFF_GRID, UserGrouped, UserResidual, enliven
from torch import nn

from bitedge.export import ExportError, extras, lower
from bitedge.export.capture.capture import trace
from bitedge.export.formats import formats
from bitedge.export.formats.tflite import check as tflite_check
from bitedge.export.formats.tflite import worker as tflite_worker
from bitedge.export.formats.tflite import writer as tflite_writer
from bitedge.export.formats.tflite.check import LayerCheck, check, layer_checks, packed_filters, table
from bitedge.export.formats.tflite.padding import axes, extensions, keras_padding, touched
from bitedge.export.formats.tflite.worker import worker
from bitedge.export.ir import ops, reference
from bitedge.export.ir.exactness import exact_values
from bitedge.export.ir.graph import Graph
from bitedge.export.ir.serialize import load_graph, save_graph
from bitedge.export.verify.engines.tflite import open_session
from bitedge.train.models import BinaryNet, BiRealNet18

pytestmark = pytest.mark.xdist_group("tensorflow")
IMAGES = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
RANDOM = int(os.environ.get("BITEDGE_EXAMPLES", "12"))

Images = NDArray[np.uint8] | NDArray[np.float32]


def paddings() -> dict[str, tuple[Graph, Images]]:
    """Every padding, stride, dilation and grouping."""
    graphs: dict[str, tuple[Graph, Images]] = {}
    for name, window in WINDOWS.items():
        for pad_value in (0, 1, -1):
            graph = padded_graph(window, pad_value, threshold=pad_value != 0 or "dilated" not in name)
            graphs[f"{name}, {pad_value}"] = (graph, padded_images())
    small = padded_graph(ops.Window((7, 9), pads=(3, 4, 3, 4)), 0, threshold=False)
    return graphs | {"a map smaller than its window": (small, padded_images())}


def lowered(network: nn.Module, preprocessing: dict[str, Any]) -> Graph:
    torch.manual_seed(0)
    return lower(trace(enliven(network, IMAGES, preprocessing), (3, 32, 32), preprocessing=preprocessing).graph)


def networks() -> dict[str, tuple[Graph, Images]]:
    """Variants of the built-in networks, and a user's own."""
    return {
        "BinaryNet, +1": (lowered(BinaryNet(width=16, pad_value=1), GRID), IMAGES),
        "BinaryNet, layer norm": (lowered(BinaryNet(width=16, norm="layer", first_padding=1), GRID), IMAGES),
        "BiRealNet18, layer norm": (
            lowered(BiRealNet18(10, width=8, image_size=32, norm="layer", tf_same=True), OFF_GRID),
            IMAGES,
        ),
        "UserGrouped": (lowered(UserGrouped(), GRID), IMAGES),
    }


def random_networks() -> dict[str, tuple[Graph, Images]]:
    cases = [network(number, number % 6, exact=number % 12 >= 6) for number in range(RANDOM)]
    graphs = [lower(trace(case.module, case.shape, preprocessing=case.preprocessing).graph) for case in cases]
    return {f"{n}\n{cases[n]}": (graph, cases[n].images) for n, graph in enumerate(graphs)}


@pytest.mark.timeout(2400)
@pytest.mark.parametrize("make", [paddings, networks, random_networks])
def test_every_network_is_packed_and_answers_as_its_definition(
    make: Callable[[], dict[str, tuple[Graph, Images]]], tmp_path: Path
) -> None:
    for name, (graph, images) in make().items():
        save_graph(graph, tmp_path)
        worker().ask(name, job="convert", folder=str(tmp_path))
        found, expected = open_session(tmp_path / "model.tflite").run(images), reference.run(graph, images)
        exact = graph.output in exact_values(graph)
        tolerance = (1e-6 if exact else 1e-3) * max(1e-3, float(np.abs(expected).max()))
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance, err_msg=name)
        rows = json.loads((tmp_path / "layers.json").read_text())
        binary = sum(isinstance(node.op, ops.BinaryConv2d) for node in graph.nodes)
        assert sum(row["binary"] for row in rows) == binary, name


@pytest.mark.timeout(1200)
def test_the_writer_and_the_engine_work_together(tmp_path: Path) -> None:
    torch.manual_seed(0)
    captured = trace(enliven(BinaryNet(width=16), IMAGES, GRID), (3, 32, 32), preprocessing=GRID)
    tflite_writer.write(bundle(lower(captured.graph)), tmp_path / "model.tflite")
    assert [path.name for path in tmp_path.iterdir()] == ["model.tflite"]
    session = open_session(tmp_path / "model.tflite")
    found = np.concatenate([session.run(IMAGES[:1]), session.run(IMAGES[1:])])
    np.testing.assert_allclose(found, captured.run(IMAGES), rtol=1e-6, atol=1e-6)
    assert session.activations(IMAGES) == {}
    (tmp_path / "broken.tflite").write_bytes(b"nothing")
    with pytest.raises(ExportError, match=r"Larq Compute Engine could not run broken\.tflite"):
        open_session(tmp_path / "broken.tflite").run(IMAGES)


def test_a_graph_survives_its_file(tmp_path: Path) -> None:
    graph, images = lowered(UserResidual(), OFF_GRID), IMAGES
    save_graph(graph, tmp_path)
    again = load_graph(tmp_path)
    assert (again.name, again.input, again.output) == (graph.name, graph.input, graph.output)
    np.testing.assert_array_equal(reference.run(again, images), reference.run(graph, images))


@pytest.mark.parametrize(
    ("size", "window", "padding", "pads", "appended"),
    [
        (8, ops.Window((3, 3), pads=(1, 1, 1, 1)), "SAME", (1, 1, 1, 1), (0, 0)),
        (8, ops.Window((3, 3), (2, 2), (0, 0, 1, 1)), "SAME", (0, 0, 1, 1), (0, 0)),
        (8, ops.Window((3, 3), (2, 2), (1, 1, 1, 1)), None, (1, 1, 0, 0), (1, 1)),
        (7, ops.Window((3, 3), (2, 2), (1, 1, 1, 1)), "SAME", (1, 1, 1, 1), (0, 0)),
        (224, ops.Window((7, 7), (2, 2), (3, 3, 3, 3)), None, (3, 3, 2, 2), None),
        (8, ops.Window((3, 3), pads=(2, 2, 0, 0)), None, (2, 2, 0, 0), None),
        (7, ops.Window((3, 3), (2, 2), (0, 0, 1, 1)), "VALID", (0, 0, 0, 0), (1, 1)),
        (8, ops.Window((3, 3), pads=(1, 1, 0, 0)), None, (1, 1, 0, 0), (1, 1)),
        (2, ops.Window((3, 3), pads=(1, 1, 1, 1)), "SAME", (1, 1, 1, 1), None),
    ],
)
def test_padding_is_cut_to_what_windows_touch(
    size: int,
    window: ops.Window,
    padding: str | None,
    pads: tuple[int, int, int, int],
    appended: tuple[int, int] | None,
) -> None:
    shape = (size, size, 4)
    assert keras_padding(shape, window) == padding
    assert touched(shape, window).pads == pads
    assert extensions(shape, window) == appended


def test_no_padding_that_is_written_out_looks_like_same_to_the_converter() -> None:
    """The converter takes a padding for SAME if the output has ceil(size / stride) pixels and the halves fit."""
    for size in range(3, 12):
        for kernel in (1, 2, 3, 5):
            for stride in (1, 2, 3):
                for before in range(kernel + 1):
                    for after in range(kernel + 1):
                        window = ops.Window((kernel, 1), (stride, 1), (before, 0, after, 0))
                        rows, _ = axes((size, 1, 1), window)
                        if rows.outputs < 1 or keras_padding((size, 1, 1), window) is not None:
                            continue
                        total = rows.before + rows.after
                        taken = rows.outputs == -(-size // stride) and rows.before == total // 2
                        assert not taken or rows.same(size) == (rows.before, rows.after), window


def test_a_layer_that_stayed_float_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = lowered(UserGrouped(), GRID)
    packed = [part for node in graph.nodes if isinstance(node.op, ops.BinaryConv2d) for part in packed_filters(node.op)]
    monkeypatch.setattr(tflite_check, "filters", lambda _: packed)
    rows = layer_checks(b"", graph)
    assert [row.layer for row in rows if row.binary] == ["conv2", "conv3", "dense"]
    assert rows[0] == LayerCheck("conv1", False, "float convolution: its input is not binary")
    assert check(b"", graph) == rows
    assert "conv3  LceBconv2d" in " ".join(table(rows).split()).replace(" LceBconv2d", "  LceBconv2d")
    monkeypatch.setattr(tflite_check, "filters", lambda _: packed[:-1])
    with pytest.raises(ExportError, match=r"left dense as float; expected a binary convolution"):
        check(b"", graph)
    monkeypatch.setattr(tflite_check, "filters", lambda _: packed)
    with pytest.raises(ExportError, match=r"the TFLite file has 1,000,000 bytes, at most \d+,\d+ were expected"):
        check(bytes(1_000_000), graph)


def test_the_converters_log_is_shown_when_it_fails_and_only_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    fake = tmp_path / "larq_compute_engine.py"
    fake.write_text("import sys\nprint('a long log', file=sys.stderr)\nraise RuntimeError('no luck today')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(tflite_worker, "_shared", None)  # a child of this test's own
    graph = padded_graph(WINDOWS["same"], 0, threshold=True)
    with pytest.raises(ExportError, match=r"^the TFLite converter failed: RuntimeError: no luck today$"):
        tflite_writer.write(bundle(graph), tmp_path / "model.tflite")
    assert "a long log" in capfd.readouterr().err
    assert not (tmp_path / "model.tflite").exists()


def test_a_missing_extra_and_a_python_without_a_wheel_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "missing", lambda _: ("larq_compute_engine", "tensorflow"))
    row = next(row for row in formats.FORMATS if row.name == "tflite")
    assert extras.needs(row.packages, row.extra, python=(3, 12)) == (
        "needs larq_compute_engine, tensorflow: pip install 'bitedge[tflite]'"
    )
    assert extras.needs(row.packages, row.extra, python=(3, 13)) == (
        "needs larq-compute-engine, which has no wheel for Python 3.13: use Python 3.12"
    )
    with pytest.raises(ExportError, match=r"the format 'tflite' needs larq_compute_engine"):
        formats.choose(["tflite"])
    assert "tflite" in formats.choose(None)[1]
