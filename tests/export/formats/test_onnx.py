"""Both ONNX files: stock operators, exact where the graph is exact, and of use without any of bitedge's code."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from tests.export.padded_graphs import WINDOWS, bundle, padded_graph, padded_images
from tests.export.small_networks import GRID, OFF_GRID, UserGrouped, UserResidual, enliven
from torch import Tensor, nn

from bitedge.export import ExportError, export, lower
from bitedge.export.capture.capture import trace
from bitedge.export.formats.onnx import float32 as onnx_float32
from bitedge.export.formats.onnx import int8 as onnx_int8
from bitedge.export.ir import ops, reference
from bitedge.export.ir.exactness import exact_values
from bitedge.export.ir.graph import Graph, Kind, Node, Value
from bitedge.export.lowering.half import halve_weights
from bitedge.export.verify.engines.onnx import open_session
from bitedge.train.models import BinaryNet, BiRealNet18, XnorNet
from bitedge.train.nn import BinaryConv2d

WRITERS = [pytest.param(onnx_float32, id="float"), pytest.param(onnx_int8, id="int8")]
LABELS = [f"class {number}" for number in range(10)]
IMAGES = np.random.default_rng(0).integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("threshold", [True, False], ids=["threshold", "affine"])
@pytest.mark.parametrize("pad_value", [0, 1, -1])
def test_every_padding_is_exact(writer: ModuleType, threshold: bool, pad_value: int, tmp_path: Path) -> None:
    images = padded_images()
    for name, window in WINDOWS.items():
        graph = padded_graph(window, pad_value, threshold=threshold)
        writer.write(bundle(graph), tmp_path / "model.onnx")
        found = open_session(tmp_path / "model.onnx").run(images)
        np.testing.assert_array_equal(found, reference.run(graph, images), err_msg=name)


def test_a_large_map_takes_the_operator_without_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = padded_graph(WINDOWS["same"], 0, threshold=False)
    onnx_int8.write(bundle(graph), tmp_path / "small.onnx")
    monkeypatch.setattr(onnx_int8, "MAX_INDEX", 9)
    onnx_int8.write(bundle(graph), tmp_path / "large.onnx")
    assert "MatMulInteger" in operators(tmp_path / "small.onnx")
    assert "ConvInteger" in operators(tmp_path / "large.onnx")
    for name in ("small", "large"):
        found = open_session(tmp_path / f"{name}.onnx").run(padded_images())
        np.testing.assert_array_equal(found, reference.run(graph, padded_images()))


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize(
    ("make", "preprocessing"),
    [
        pytest.param(partial(BinaryNet, width=16), GRID, id="BinaryNet"),
        pytest.param(partial(BinaryNet, width=16, norm="layer", first_padding=1), GRID, id="BinaryNet-layer"),
        pytest.param(partial(XnorNet, 10, width=24, image_size=32, stem_stride=1), OFF_GRID, id="XnorNet"),
        pytest.param(
            partial(XnorNet, 10, width=24, image_size=32, stem_stride=1, norm="layer"), OFF_GRID, id="XnorNet-layer"
        ),
        pytest.param(partial(BiRealNet18, 10, width=16, image_size=32, stem_stride=1), OFF_GRID, id="BiRealNet18"),
        pytest.param(
            partial(BiRealNet18, 10, width=16, image_size=32, stem_stride=1, norm="layer", tf_same=True),
            OFF_GRID,
            id="BiRealNet18-layer",
        ),
        pytest.param(UserResidual, OFF_GRID, id="UserResidual"),
        pytest.param(UserGrouped, GRID, id="UserGrouped"),
    ],
)
def test_networks_answer_as_torch(
    writer: ModuleType, make: Callable[[], nn.Module], preprocessing: dict[str, object], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    captured = trace(enliven(make(), IMAGES, preprocessing), (3, 32, 32), preprocessing=preprocessing)
    graph = lower(captured.graph)
    writer.write(bundle(graph), tmp_path / "model.onnx")
    session = open_session(tmp_path / "model.onnx")
    expected, found = captured.run(IMAGES), session.run(IMAGES)
    if graph.output in exact_values(graph):
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, atol=1e-3 * np.abs(expected).max())
    assert (found.argmax(axis=1) == expected.argmax(axis=1)).all()


def test_the_int8_file_rounds_once_where_integers_lead_and_fuses_elsewhere(tmp_path: Path) -> None:
    torch.manual_seed(0)
    for preprocessing, exact in ((GRID, True), (OFF_GRID, False)):
        module = enliven(UserSums(), IMAGES, preprocessing)
        captured = trace(module, (3, 32, 32), preprocessing=preprocessing)
        graph = lower(captured.graph)
        assert ("add.sign" in exact_values(graph)) is exact
        onnx_int8.write(bundle(graph), tmp_path / "model.onnx")
        made = optimized_operators(tmp_path / "model.onnx")
        assert made.count("MatMulIntegerToFloat") == (0 if exact else 3)
        values = open_session(tmp_path / "model.onnx").activations(IMAGES)
        known = captured.tensors(IMAGES)
        differing = (values["add.sign"] != known["add.sign"].reshape(values["add.sign"].shape)).sum()
        assert differing == 0 if exact else differing <= 2


class UserSums(nn.Module):
    """Sums of binary layers: integers lead to all of it if the pixels are on the grid."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = BinaryConv2d(3, 16, 3, padding=1, input_quantizer=None)
        self.stem_norm = nn.BatchNorm2d(16)
        self.conv1, self.norm1 = BinaryConv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.conv2, self.norm2 = BinaryConv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.conv3, self.norm3 = BinaryConv2d(16, 10, 3, stride=4), nn.BatchNorm2d(10)

    def forward(self, x: Tensor) -> Tensor:
        """Answer."""
        x = self.stem_norm(self.stem(x))
        x = self.norm1(self.conv1(x)) + self.norm2(self.conv2(x))
        logits: Tensor = self.norm3(self.conv3(x)).mean((2, 3))
        return logits


PLAIN = """
import json, sys
import numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
known = session.get_modelmeta().custom_metadata_map
images = numpy.load(sys.argv[2])
answers = [session.run(None, {session.get_inputs()[0].name: images[i : i + n]})[0] for i, n in ((0, 1), (1, 11))]
numpy.save(sys.argv[3], numpy.concatenate(answers))
print(json.dumps({
    "input": [session.get_inputs()[0].type, session.get_inputs()[0].shape],
    "labels": json.loads(known["bitedge.labels"]),
    "preprocessing": json.loads(known["bitedge.preprocessing"]),
    "training": json.loads(known["bitedge.training"]),
    "bitedge": [name for name in sys.modules if name.startswith("bitedge")],
}))
"""


@pytest.mark.parametrize("format_name", ["onnx", "int8"])
def test_a_plain_session_needs_nothing_of_bitedge(format_name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = enliven(UserResidual(), IMAGES, GRID)
    report = export(
        module,
        (3, 32, 32),
        tmp_path,
        formats=[format_name],
        labels=LABELS,
        preprocessing=GRID,
        training={"seed": 7},
    )
    (path,) = (tmp_path / name for name in report.sizes)
    np.save(tmp_path / "images.npy", IMAGES)
    command = [sys.executable, "-c", PLAIN, str(path), str(tmp_path / "images.npy"), str(tmp_path / "answers.npy")]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert told == {
        "input": ["tensor(uint8)", ["batch", 32, 32, 3]],
        "labels": LABELS,
        "preprocessing": GRID,
        "training": {"seed": 7},
        "bitedge": [],
    }
    expected = trace(module, (3, 32, 32), preprocessing=GRID).run(IMAGES)
    np.testing.assert_allclose(np.load(tmp_path / "answers.npy"), expected, atol=1e-3 * np.abs(expected).max())


@pytest.mark.parametrize("writer", WRITERS)
def test_the_file_is_stock_readable_small_and_always_the_same(writer: ModuleType, tmp_path: Path) -> None:
    torch.manual_seed(0)
    graph = lower(trace(enliven(BinaryNet(width=32), IMAGES, GRID), (3, 32, 32), preprocessing=GRID).graph)
    for name in ("a.onnx", "b.onnx"):
        writer.write(bundle(graph), tmp_path / name)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.onnx", "b.onnx"]
    model = onnx.load(str(tmp_path / "a.onnx"))
    onnx.checker.check_model(model, full_check=True)
    assert [(row.domain, row.version >= 17) for row in model.opset_import] == [("", True)]
    assert {node.domain for node in model.graph.node} == {""}
    made = {name for node in model.graph.node for name in node.output}
    assert {name for node in graph.nodes for name in node.outputs} <= made
    weights = sum(node.op.weight.size for node in graph.nodes if isinstance(node.op, ops.BinaryConv2d))
    assert (tmp_path / "a.onnx").stat().st_size < weights / 8 + 50_000


def test_the_int8_file_multiplies_integers_only(tmp_path: Path) -> None:
    torch.manual_seed(0)
    graph = lower(trace(enliven(BinaryNet(width=16), IMAGES, GRID), (3, 32, 32), preprocessing=GRID).graph)
    onnx_int8.write(bundle(graph), tmp_path / "model.onnx")
    found = operators(tmp_path / "model.onnx")
    assert (found.count("QLinearConv"), found.count("MatMulInteger")) == (8, 1)
    assert not {"Conv", "MatMul", "Gemm"} & set(found)


@pytest.mark.parametrize("writer", WRITERS)
def test_half_weights_stay_half_in_the_file(writer: ModuleType, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = enliven(UserResidual(), IMAGES, OFF_GRID)
    graph = halve_weights(lower(trace(module, (3, 32, 32), preprocessing=OFF_GRID).graph))
    writer.write(bundle(graph), tmp_path / "model.onnx")
    stored = {row.name: row.data_type for row in onnx.load(str(tmp_path / "model.onnx")).graph.initializer}
    assert list(stored.values()).count(onnx.TensorProto.FLOAT16) == 3
    found, expected = open_session(tmp_path / "model.onnx").run(IMAGES), reference.run(graph, IMAGES)
    np.testing.assert_allclose(found, expected, atol=1e-3 * np.abs(expected).max())


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("threshold", [True, False])
@pytest.mark.parametrize("writer", WRITERS)
def test_pixels_are_summed_exactly_under_padding(
    writer: ModuleType, threshold: bool, groups: int, tmp_path: Path
) -> None:
    random = np.random.default_rng(0)
    weight = random.choice(np.array([-1, 1], np.int8), (6, 3, 3, 3 // groups))
    limits = random.integers(-500, 500, 6).astype(np.int32)
    epilogue = ops.Threshold(limits) if threshold else ops.Affine()
    conv = ops.ImageConv2d(weight, ops.Window((3, 3), (2, 1), (1, 2, 0, 1), groups=groups), epilogue)
    nodes = (Node(conv, ("image",), ("out",)), Node(ops.Elementwise(ops.Affine()), ("out",), ("answer",)))
    graph = Graph("pixels", Value("image", Kind.UINT8, (9, 7, 3)), nodes, "answer")
    images = random.integers(0, 256, (4, 9, 7, 3), dtype=np.uint8)
    images[0], images[1] = 0, 255
    writer.write(bundle(graph), tmp_path / "model.onnx")
    np.testing.assert_array_equal(open_session(tmp_path / "model.onnx").run(images), reference.run(graph, images))


def test_more_pixels_than_float32_can_sum_are_refused(tmp_path: Path) -> None:
    weight = np.ones((1, 150, 150, 3), np.int8)
    conv = ops.ImageConv2d(weight, ops.Window((150, 150)), ops.Affine())
    graph = Graph("wide", Value("image", Kind.UINT8, (150, 150, 3)), (Node(conv, ("image",), ("out",), "wide"),), "out")
    with pytest.raises(ExportError, match=r"layer 'wide': more than 65536 taps on pixels are not exact in float32"):
        onnx_float32.write(bundle(graph), tmp_path / "model.onnx")
    onnx_int8.write(bundle(graph), tmp_path / "model.onnx")
    images = np.random.default_rng(0).integers(0, 256, (2, 150, 150, 3), dtype=np.uint8)
    np.testing.assert_array_equal(open_session(tmp_path / "model.onnx").run(images), reference.run(graph, images))


def optimized_operators(path: Path) -> list[str]:
    """Give what onnxruntime makes of the file."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(path.with_suffix(".optimized.onnx"))
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return operators(path.with_suffix(".optimized.onnx"))


def operators(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(str(path)).graph.node]
