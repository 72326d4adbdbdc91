"""Every export proves itself: each deliberate fault, wherever it sits, is found by `export()` and its file removed."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.export.small_networks import GRID, OFF_GRID, UserResidual, enliven
from torch import Tensor, nn

from bitedge.export import ExportError, Report, api, export, lower
from bitedge.export.capture.capture import trace
from bitedge.export.formats.gguf import writer as gguf_writer
from bitedge.export.formats.onnx import float32 as onnx_float32
from bitedge.export.formats.onnx import int8 as onnx_int8
from bitedge.export.formats.onnx import layers as onnx_layers
from bitedge.export.formats.onnx.emitter import OnnxEmitter
from bitedge.export.formats.tflite import writer as tflite_writer
from bitedge.export.ir import ops
from bitedge.export.ir.epilogue import from_steps, steps_of
from bitedge.export.ir.graph import Graph, Node
from bitedge.export.ir.serialize import save_graph
from bitedge.export.verify.engines.core import CoreSession
from bitedge.export.verify.thresholds import threshold_breach
from bitedge.runtime import Model
from bitedge.train.models import BinaryNet

IMAGES = np.random.default_rng(0).integers(0, 256, (24, 32, 32, 3), dtype=np.uint8)
Change = Callable[[Graph], Graph]


@pytest.fixture(scope="module")
def binarynet() -> nn.Module:
    torch.manual_seed(0)
    return enliven(BinaryNet(width=8), IMAGES, GRID)


@pytest.fixture(scope="module")
def residual() -> nn.Module:
    torch.manual_seed(0)
    return enliven(UserResidual(), IMAGES, OFF_GRID)


def written(module: nn.Module, folder: Path, *formats: str, **options: Any) -> Report:
    preprocessing = GRID if isinstance(module, BinaryNet) else OFF_GRID
    return export(module, (3, 32, 32), folder, formats=formats, preprocessing=preprocessing, **options)


def change_node(index: int, kind: type[ops.Op], change: Callable[[Any], Any]) -> Change:
    """Change the operator of the node of this kind and number."""

    def apply(graph: Graph) -> Graph:
        chosen = [node for node in graph.nodes if isinstance(node.op, kind)][index]
        other = change(chosen.op)
        return graph.with_nodes(replace(node, op=other) if node is chosen else node for node in graph.nodes)

    return apply


def threshold_of_channel(op: ops.BinaryConv2d, by: int) -> ops.BinaryConv2d:
    assert isinstance(op.epilogue, ops.Threshold)
    limits = op.epilogue.threshold.copy()
    limits[np.abs(limits).argmin()] += by  # a channel that decides something
    return replace(op, epilogue=ops.Threshold(limits))


def negate_channel(op: Any) -> Any:
    weight = op.weight.copy()
    weight[np.abs(op.epilogue.threshold).argmin()] *= -1
    return replace(op, weight=weight)


def change_step(kind: str, change: Callable[[ops.Step], ops.Step | None]) -> Callable[[Any], Any]:
    """Change, or leave out, the steps of this kind; an operand that nobody reads any more goes with its step."""

    def apply(op: Any) -> Any:
        steps = [change(s) if s.kind == kind else s for s in steps_of(op.epilogue, 2)]
        return replace(op, epilogue=from_steps(tuple(s for s in steps if s is not None), op.epilogue.emit))

    return apply


def without_residual(graph: Graph) -> Graph:
    chosen = next(node for node in graph.nodes if len(node.inputs) > 1 and ops.epilogue_of(node.op) is not None)
    op = change_step("add", lambda _: None)(chosen.op)
    bare = Node(op, chosen.inputs[:1], chosen.outputs, chosen.layer, chosen.absorbed)
    return graph.with_nodes(bare if node is chosen else node for node in graph.nodes)


def shifted_padding(op: ops.BinaryConv2d) -> ops.BinaryConv2d:
    top, left, bottom, right = op.window.pads
    return replace(op, window=replace(op.window, pads=(top + 1, left, bottom - 1, right)))


BINARYNET_FAULTS: dict[str, Change] = {
    "a threshold one too high": change_node(1, ops.BinaryConv2d, lambda op: threshold_of_channel(op, 1)),
    "a threshold one too low": change_node(4, ops.BinaryConv2d, lambda op: threshold_of_channel(op, -1)),
    "a negative scale not absorbed": change_node(1, ops.BinaryConv2d, negate_channel),
    "the minimum of bits forgotten": change_node(0, ops.MaxPool2d, lambda op: replace(op, min_channels=None)),
    "another padding": change_node(1, ops.BinaryConv2d, lambda op: replace(op, pad_value=1)),
    "padding on the wrong side": change_node(2, ops.BinaryConv2d, shifted_padding),
    "a flatten in another order": change_node(
        5, ops.BinaryConv2d, lambda op: replace(op, weight=np.ascontiguousarray(op.weight[:, ::-1]))
    ),
    "pixels with swapped channels": change_node(
        0, ops.ImageConv2d, lambda op: replace(op, weight=np.ascontiguousarray(op.weight[..., ::-1]))
    ),
}


def is_affine_fault(name: str) -> Callable[[Any], Any]:
    changes: dict[str, tuple[str, Callable[[ops.Step], ops.Step | None]]] = {
        "bias": ("fma", lambda s: replace(s, bias=0 * s.bias)),  # type: ignore[operator,arg-type]
        "scale": ("fma", lambda s: replace(s, scale=s.scale * np.float32(1.02))),  # type: ignore[operator,call-overload]
        "slope": ("prelu", lambda s: replace(s, slope=-s.slope)),  # type: ignore[operator]
    }
    return change_step(*changes[name])


RESIDUAL_FAULTS: dict[str, Change] = {
    "a residual forgotten": without_residual,
    "a bias forgotten": change_node(0, ops.Conv2d, is_affine_fault("bias")),
    "a scale off by two percent": change_node(0, ops.BinaryConv2d, is_affine_fault("scale")),
    "a slope of the wrong sign": change_node(0, ops.BinaryConv2d, is_affine_fault("slope")),
    "a weight off by a tenth": change_node(-1, ops.Conv2d, lambda op: replace(op, weight=op.weight * np.float32(1.1))),
}


def faulty_lowering(monkeypatch: pytest.MonkeyPatch, fault: Change) -> None:
    monkeypatch.setattr(api, "lower", lambda graph: fault(lower(graph)))


@pytest.mark.parametrize("fault", BINARYNET_FAULTS)
def test_a_fault_of_lowering_is_found(
    fault: str, binarynet: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty_lowering(monkeypatch, BINARYNET_FAULTS[fault])
    report = written(binarynet, tmp_path, "gguf", "onnx")
    assert set(report.failures) == {"gguf", "onnx"}
    assert all("differs" in reason for reason in report.failures.values()), report.failures
    assert report.sizes == {}
    assert not list(tmp_path.glob("model*"))


@pytest.mark.parametrize("fault", RESIDUAL_FAULTS)
def test_a_fault_among_float_layers_is_found(
    fault: str, residual: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty_lowering(monkeypatch, RESIDUAL_FAULTS[fault])
    report = written(residual, tmp_path, "gguf")
    assert "layer" in report.failures["gguf"]
    assert not (tmp_path / "model.gguf").exists()


def resealed(path: Path, content: bytearray) -> None:
    """Write altered bytes with a checksum that fits them."""
    field = b"bitedge.sha256" + struct.pack("<IQ", 8, 64)
    at = content.index(field) + len(field)
    content[at : at + 64] = b"0" * 64
    content[at : at + 64] = hashlib.sha256(content).hexdigest().encode()
    path.write_bytes(content)


def altered_tensor(name: str, change: Callable[[np.ndarray[Any, Any]], None]) -> Callable[[Path], None]:
    """Change the bytes of one tensor of a packed file, in place."""

    def apply(path: Path) -> None:
        import gguf

        reader = gguf.GGUFReader(path)
        tensor = next(tensor for tensor in reader.tensors if tensor.name == name)
        content = bytearray(path.read_bytes())
        size = int(tensor.n_bytes)
        values = np.frombuffer(bytes(content[tensor.data_offset : tensor.data_offset + size]), tensor.data.dtype).copy()
        change(values)
        content[tensor.data_offset : tensor.data_offset + size] = values.tobytes()
        resealed(path, content)

    return apply


def add_one(values: np.ndarray[Any, Any]) -> None:
    values[np.abs(values).argmin()] += 1


def flip_bit(values: np.ndarray[Any, Any]) -> None:
    values[0] ^= 4


def add_a_tenth(values: np.ndarray[Any, Any]) -> None:
    values[:] = values + np.float32(0.1)


FILE_FAULTS: dict[str, Callable[[Path], None]] = {
    "a threshold": altered_tensor("node.4.threshold", add_one),
    "a bit of a weight": altered_tensor("node.3.weight", flip_bit),
    "a bit of the first layer": altered_tensor("node.0.weight", flip_bit),
    "a golden answer": altered_tensor("golden.output", add_a_tenth),
}


@pytest.mark.parametrize("fault", FILE_FAULTS)
def test_altered_bytes_of_the_packed_file_are_found_and_the_other_files_stay(
    fault: str, binarynet: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = gguf_writer.write

    def damaged(bundle: Any, path: Path) -> None:
        write(bundle, path)
        FILE_FAULTS[fault](path)

    monkeypatch.setattr(gguf_writer, "write", damaged)
    report = written(binarynet, tmp_path, "gguf", "onnx")
    assert set(report.failures) == {"gguf"}
    assert "was removed" in report.failures["gguf"]
    assert not (tmp_path / "model.gguf").exists()
    assert set(report.sizes) == {"model.onnx"}
    assert (tmp_path / "model.onnx").exists()


def test_a_fused_program_that_answers_otherwise_is_found(
    binarynet: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = CoreSession.run

    def wrong(self: CoreSession, images: Any) -> Any:
        answers = run(self, images).copy()
        answers[:, 0] *= np.float32(1.01)
        return answers

    monkeypatch.setattr(CoreSession, "run", wrong)
    report = written(binarynet, tmp_path, "gguf")
    assert "the fused program answers image 0 otherwise than the layers one by one" in report.failures["gguf"]


def lost_bias(monkeypatch: pytest.MonkeyPatch) -> None:
    fma = OnnxEmitter.fma
    monkeypatch.setattr(OnnxEmitter, "fma", lambda s, n, x, scale, bias, *rest: fma(s, n, x, scale, 0 * bias, *rest))


def moved_pads(monkeypatch: pytest.MonkeyPatch) -> None:
    right = onnx_layers.window_attributes

    def wrong(window: ops.Window) -> dict[str, Any]:
        top, left, bottom, right_ = window.pads
        return right(window) | {"pads": [bottom + 1, right_, top - 1, left] if top else list(window.pads)}

    for module in (onnx_layers, onnx_int8):
        monkeypatch.setattr(module, "window_attributes", wrong)
    from bitedge.export.formats.onnx import emitter

    monkeypatch.setattr(emitter, "window_attributes", wrong)


def swapped_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    from bitedge.export.formats.onnx.builder import OnnxBuilder

    signs = OnnxBuilder.signs
    monkeypatch.setattr(OnnxBuilder, "signs", lambda s, w, shape, table, name: signs(s, -w, shape, table, name))


def other_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    from bitedge.export.formats.onnx import builder

    properties = builder.properties
    monkeypatch.setattr(builder, "properties", lambda b: properties(replace(b, labels=b.labels[::-1])))


ONNX_FAULTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a lost bias": lost_bias,
    "moved pads": moved_pads,
    "swapped signs": swapped_signs,
    "labels in another order": other_labels,
}


@pytest.mark.parametrize("name", ["onnx", "int8"])
@pytest.mark.parametrize("fault", ONNX_FAULTS)
def test_a_fault_of_the_onnx_writers_is_found(
    fault: str, name: str, residual: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ONNX_FAULTS[fault](monkeypatch)
    report = written(residual, tmp_path, name, labels=[f"class {i}" for i in range(10)])
    assert set(report.failures) == {name}
    assert not list(tmp_path.glob("model*"))


def test_a_threshold_that_the_int8_file_misses_by_one_is_found(
    binarynet: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = onnx_int8.write
    fault = BINARYNET_FAULTS["a threshold one too high"]
    monkeypatch.setattr(onnx_int8, "write", lambda b, path: write(replace(b, lowered=fault(b.lowered)), path))
    report = written(binarynet, tmp_path, "int8", "onnx")
    assert set(report.failures) == {"int8"}
    assert "differs" in report.failures["int8"]
    assert set(report.sizes) == {"model.onnx"}


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["a negative scale not absorbed", "pixels with swapped channels"])
def test_a_fault_of_the_tflite_writer_is_found(
    fault: str, binarynet: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = BINARYNET_FAULTS[fault]
    monkeypatch.setattr(tflite_writer, "save_graph", lambda graph, folder: save_graph(change(graph), folder))
    report = written(binarynet, tmp_path, "tflite")
    assert "did not answer as torch does and was removed" in report.failures["tflite"]
    assert not (tmp_path / "model.tflite").exists()


def test_a_writer_that_loses_the_names_of_values_proves_nothing(
    binarynet: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zero compared bits in a network with binary layers is a failure."""
    activations = CoreSession.activations
    renamed = lambda self, images: {f"x.{k}": v for k, v in activations(self, images).items()}  # noqa: E731
    monkeypatch.setattr(CoreSession, "activations", renamed)
    assert "no bit of a binary layer could be compared" in written(binarynet, tmp_path, "gguf").failures["gguf"]


class WritesInPlace(nn.Module):
    """A pre-activation block as most code has it: the ReLU changes the value that the shortcut reads."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)
        self.conv = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Give the answer."""
        x = self.stem(x)
        y = self.conv(self.relu(x))
        x += y
        return self.head(x.mean((2, 3)))  # type: ignore[no-any-return]


def test_what_writes_in_place_never_leaves_a_file_that_answers_otherwise(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = WritesInPlace().eval()
    written(module, tmp_path, "gguf")
    pixels = torch.from_numpy(IMAGES).permute(0, 3, 1, 2).float()
    scale, offset = (torch.tensor(OFF_GRID[key]).reshape(1, 3, 1, 1) for key in ("scale", "offset"))
    with torch.no_grad():
        expected = module(pixels * scale + offset).numpy()
    for path in tmp_path.glob("model.gguf"):
        np.testing.assert_allclose(Model(path).run(IMAGES), expected, rtol=1e-3, atol=1e-3)


def thresholds(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if isinstance(ops.epilogue_of(node.op), ops.Threshold)]


@pytest.mark.parametrize("channel", ["first", "last", "largest"])
@pytest.mark.parametrize("by", [1, -1])
def test_a_threshold_that_no_image_hits_is_found(by: int, channel: str, binarynet: nn.Module) -> None:
    """Every layer of its own, before a max-pool and in dense layers too: torch gets the sums themselves."""
    captured = trace(binarynet, (3, 32, 32), preprocessing=GRID)
    graph = lower(captured.graph)
    assert threshold_breach(captured, graph) is None
    assert len(thresholds(graph)) == 8
    for chosen in thresholds(graph):
        assert isinstance(chosen.op, ops.BinaryConv2d | ops.ImageConv2d)
        assert isinstance(chosen.op.epilogue, ops.Threshold)
        limits = chosen.op.epilogue.threshold.copy()
        turning = np.nonzero(np.abs(limits) < ops.accumulator_bound(chosen.op))[0]
        index = {"first": turning[0], "last": turning[-1], "largest": turning[np.abs(limits[turning]).argmax()]}[
            channel
        ]
        limits[index] += by
        wrong = replace(chosen, op=replace(chosen.op, epilogue=ops.Threshold(limits)))
        other = graph.with_nodes(wrong if node is chosen else node for node in graph.nodes)
        breach = threshold_breach(captured, other)
        assert breach is not None
        assert breach.startswith(f"layer {chosen.layer!r}: its threshold differs from torch in 1 of {len(limits)} ")
        assert f"in channel {index}:" in breach


def test_export_finds_a_threshold_before_a_max_pool(
    binarynet: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(graph: Graph) -> Graph:
        pool = next(node for node in graph.nodes if isinstance(node.op, ops.MaxPool2d))
        before = next(node for node in graph.nodes if node.outputs == pool.inputs)
        limits = before.op.epilogue.threshold.copy()  # type: ignore[attr-defined]
        limits[np.abs(limits).argmax()] -= int(np.sign(limits[np.abs(limits).argmax()]))
        wrong = replace(before, op=replace(before.op, epilogue=ops.Threshold(limits)))  # type: ignore[call-arg]
        return graph.with_nodes(wrong if node is before else node for node in graph.nodes)

    faulty_lowering(monkeypatch, fault)
    report = written(binarynet, tmp_path, "gguf", "onnx", "int8")
    assert set(report.failures) == {"gguf", "onnx", "int8"}
    assert all("its threshold differs from torch in 1 of" in reason for reason in report.failures.values())


def test_a_correct_export_tells_what_it_compared(residual: nn.Module, tmp_path: Path) -> None:
    report = written(residual, tmp_path, "gguf", "onnx", evaluation=(IMAGES, np.zeros(24, np.int64)))
    assert report.failures == {}
    assert report.proof["images"] == report.proof["of"] == 8 + 24
    assert set(report.proof["files"]) == {"model.gguf", "model.onnx"}
    assert report.proof["files"]["model.gguf"]["bits"] > 100_000
    assert "compared with torch on 32 inputs" in report.text()


def test_images_of_another_shape_are_refused(residual: nn.Module, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"expected evaluation images uint8 \[N, 32, 32, 3\], got uint8 \[24, 32, 16, 3\]"
    ):
        written(residual, tmp_path, "gguf", evaluation=(IMAGES[:, :, :16], np.zeros(24, np.int64)))


def test_a_file_of_an_earlier_export_does_not_outlive_a_failure(
    binarynet: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert written(binarynet, tmp_path, "onnx").failures == {}
    lost_bias(monkeypatch)
    monkeypatch.setattr(onnx_float32, "save", lambda *_: (_ for _ in ()).throw(ExportError("no room")))
    assert "no room" in written(binarynet, tmp_path, "onnx").failures["onnx"]
    assert not (tmp_path / "model.onnx").exists()
