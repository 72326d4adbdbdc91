"""The packed file byte by byte: docs/format.md against the writer, with a reader that shares no code with it."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from tests.export.small_networks import GRID, UserResidual, enliven

from bitedge.export import lower
from bitedge.export.capture.capture import capture
from bitedge.export.formats.bundle import Bundle
from bitedge.export.formats.gguf import writer as gguf_writer
from bitedge.export.formats.gguf.packing import unpack
from bitedge.export.ir import ops
from bitedge.export.ir.graph import Graph, Kind, Node, Value
from bitedge.export.verify.golden import Golden, reference_golden
from bitedge.runtime import Model, RuntimeFault


def tiny_graph() -> Graph:
    """One 3x1 image of two channels, thresholded into three bits, and a scale."""
    weight = np.array([[[[1, -1]]], [[[-1, -1]]], [[[1, 1]]]], np.int8)
    threshold = ops.Threshold(np.array([-2, 1, 511], np.int32))
    dense = np.array([1, -1, 1] * 3, np.int8).reshape(1, 3, 1, 3)
    scale = ops.Affine(np.array([0.5], np.float32), np.array([-1.5], np.float32))
    nodes = (
        Node(ops.ImageConv2d(weight, epilogue=threshold), ("image",), ("bits",), "conv"),
        Node(ops.BinaryConv2d(dense, ops.Window((3, 1)), -1, scale), ("bits",), ("answer",), "dense"),
    )
    return Graph("tiny", Value("image", Kind.UINT8, (3, 1, 2)), nodes, "answer")


def tiny_bundle() -> Bundle:
    graph = tiny_graph()
    return Bundle(graph, graph, reference_golden(graph), ("yes",), {"size": [3, 1]}, {"seed": 7})


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def u32(key: str, number: int) -> bytes:
    return string(key) + struct.pack("<II", 4, number)


def u32s(key: str, *numbers: int) -> bytes:
    return string(key) + struct.pack("<IIQ", 9, 4, len(numbers)) + struct.pack(f"<{len(numbers)}I", *numbers)


def text(key: str, value: str) -> bytes:
    return string(key) + struct.pack("<I", 8) + string(value)


def texts(key: str, *values: str) -> bytes:
    return string(key) + struct.pack("<IIQ", 9, 8, len(values)) + b"".join(map(string, values))


def window(prefix: str, kernel: tuple[int, int]) -> bytes:
    return (
        u32s(prefix + "kernel", *kernel)
        + u32s(prefix + "stride", 1, 1)
        + u32s(prefix + "pads", 0, 0, 0, 0)
        + u32s(prefix + "dilation", 1, 1)
        + u32(prefix + "groups", 1)
    )


def golden_bytes() -> bytes:
    """The whole tiny file, written by hand from docs/format.md."""
    zero, one = "bitedge.node.0.", "bitedge.node.1."
    keys = [
        text("general.architecture", "bitedge"),
        text("general.name", "tiny"),
        u32("bitedge.format_version", 1),
        text("bitedge.sha256", "0" * 64),
        text("bitedge.input.kind", "uint8"),
        text("bitedge.input.name", "image"),
        u32s("bitedge.input.shape", 3, 1, 2),
        texts("bitedge.labels", "yes"),
        text("bitedge.preprocessing", '{"size":[3,1]}'),
        text("bitedge.training", '{"seed":7}'),
        u32("bitedge.golden.count", 2),
        string("bitedge.golden.seed") + struct.pack("<IQ", 10, 1),
        u32("bitedge.graph.nodes", 2),
        u32("bitedge.graph.output", 2),
        text(zero + "op", "image_conv2d"),
        u32s(zero + "inputs", 0),
        texts(zero + "outputs", "bits"),
        window(zero, (1, 1)),
        text(zero + "epilogue", "threshold"),
        text(one + "op", "binary_conv2d"),
        u32s(one + "inputs", 1),
        texts(one + "outputs", "answer"),
        window(one, (3, 1)),
        string(one + "pad_value") + struct.pack("<Ii", 5, -1),
        text(one + "epilogue", "affine"),
        text(one + "activation", "none"),
        text(one + "emit", "float"),
    ]
    f32, i32, i64 = 0, 26, 27
    tensors = [
        ("node.0.weight", (3, 1, 1, 1), i64, struct.pack("<3Q", 0b10, 0b11, 0b00)),
        ("node.0.threshold", (3,), i32, struct.pack("<3i", -2, 1, 511)),
        ("node.1.weight", (1, 3, 1, 1), i64, struct.pack("<3Q", 0b010, 0b010, 0b010)),
        ("node.1.scale", (1,), f32, struct.pack("<f", 0.5)),
        ("node.1.bias", (1,), f32, struct.pack("<f", -1.5)),
        ("golden.output", (2, 1), f32, struct.pack("<2f", *_golden_answers())),
    ]
    entries = len(keys) + 8  # each of the two windows is five keys
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), entries) + b"".join(keys)
    offset, data = 0, b""
    for name, shape, kind, content in tensors:
        header += string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), kind, offset)
        data += content + bytes(-len(content) % 32)
        offset = len(data)
    whole = header + bytes(-len(header) % 32) + data
    digest = hashlib.sha256(whole).hexdigest().encode()
    position = whole.index(b"0" * 64)
    return whole[:position] + digest + whole[position + 64 :]


def _golden_answers() -> list[float]:
    """The two answers, worked out with whole numbers from the definition alone."""
    answers = []
    for seed in (1, 2):
        state, octets = seed, b""
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        z = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        octets = (z ^ (z >> 31)).to_bytes(8, "little")
        total = 0
        for row in range(3):
            a, b = (2 * octets[2 * row + channel] - 255 for channel in (0, 1))
            bits = [1 if a - b >= -2 else -1, 1 if -a - b >= 1 else -1, 1 if a + b >= 511 else -1]
            total += bits[0] - bits[1] + bits[2]
        answers.append(total * 0.5 - 1.5)
    return answers


def test_golden_bytes(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    gguf_writer.write(tiny_bundle(), path)
    assert path.read_bytes() == golden_bytes()


def test_the_core_reads_the_golden_bytes(tmp_path: Path) -> None:
    model = Model(golden_bytes())
    model.check()
    assert model.labels == ("yes",)
    assert model.training == {"seed": 7}


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    torch.manual_seed(0)
    images = np.random.default_rng(0).integers(0, 256, (8, 32, 32, 3), dtype=np.uint8)
    graph = capture(enliven(UserResidual(), images, GRID), (3, 32, 32), preprocessing=GRID)
    lowered = lower(graph)
    return Bundle(graph, lowered, reference_golden(lowered), tuple(f"class {n}" for n in range(10)), GRID, {"a": 1})


def test_the_same_bundle_gives_the_same_bytes(bundle: Bundle, tmp_path: Path) -> None:
    gguf_writer.write(bundle, tmp_path / "one.gguf")
    gguf_writer.write(bundle, tmp_path / "two.gguf")
    assert (tmp_path / "one.gguf").read_bytes() == (tmp_path / "two.gguf").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.gguf", "two.gguf"]


def test_an_independent_reader_finds_every_tensor(bundle: Bundle, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    gguf_writer.write(bundle, path)
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    for number, node in enumerate(bundle.lowered.nodes):
        for name, stored in gguf_writer.node_tensors(node.op).items():
            found = tensors.pop(f"node.{number}.{name}")
            assert found.data_offset % 32 == 0
            np.testing.assert_array_equal(np.asarray(found.data).reshape(stored.shape), stored)
            if isinstance(node.op, ops.BinaryConv2d) and name == "weight":
                words = np.asarray(found.data).view(np.uint64).reshape(stored.shape)
                np.testing.assert_array_equal(unpack(words, node.op.weight.shape[3]), node.op.weight)
    assert list(tensors) == ["golden.output"]


def test_any_altered_byte_is_found(bundle: Bundle, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    gguf_writer.write(bundle, path)
    content = bytearray(path.read_bytes())
    random = np.random.default_rng(0)
    for position in random.integers(0, len(content), 40):
        altered = bytearray(content)
        altered[position] ^= 1 << int(random.integers(8))
        with pytest.raises(RuntimeFault):
            Model(bytes(altered))


def test_a_wrong_golden_answer_is_found(bundle: Bundle, tmp_path: Path) -> None:
    wrong = Golden(bundle.golden.seed, bundle.golden.output + np.float32(1))
    path = tmp_path / "model.gguf"
    gguf_writer.write(Bundle(bundle.captured, bundle.lowered, wrong), path)
    with pytest.raises(RuntimeFault):
        Model(path).check()


def test_nothing_is_left_behind_when_writing_fails(tmp_path: Path) -> None:
    graph = tiny_graph()
    broken = Bundle(graph, graph, Golden(-1, np.zeros((1, 1), np.float32)))
    with pytest.raises(struct.error):
        gguf_writer.write(broken, tmp_path / "model.gguf")
    assert list(tmp_path.iterdir()) == []
