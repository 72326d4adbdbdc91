"""The container as others see it: the `gguf` package reads from our files what the core reads, and the reverse."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from tests.runtime.packed_file import AFFINE, PackedFile, pack_bits, small_model, window

from bitedge.runtime import Model

gguf = pytest.importorskip("gguf", reason="the gguf package comes with the train extra")


def test_the_gguf_package_reads_our_file(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    file = small_model()
    path.write_bytes(file.build())
    reader = gguf.GGUFReader(path)
    fields = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    assert set(fields) == set(file.keys)
    assert fields["bitedge.node.1.stride"] == [2, 2]
    assert fields["bitedge.labels"] == file.keys["bitedge.labels"][1]
    assert [tensor.name for tensor in reader.tensors] == list(file.tensors)
    for tensor in reader.tensors:
        expected = file.tensors[tensor.name]
        assert tensor.data_offset % 32 == 0
        np.testing.assert_array_equal(tensor.data.reshape(expected.shape), expected)


def test_the_core_reads_a_file_of_the_gguf_package(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "bitedge")
    file = small_model()
    for key, (kind, value) in file.keys.items():
        if key == "general.architecture":
            continue
        if kind.endswith("[]"):
            types = gguf.GGUFValueType
            sub = types.UINT32 if kind == "u32[]" else types.STRING
            writer.add_key_value(key, value, types.ARRAY, sub_type=sub)
        else:
            kinds = {"string": "STRING", "u32": "UINT32", "i32": "INT32", "bool": "BOOL"}
            writer.add_key_value(key, value, gguf.GGUFValueType[kinds[kind]])
    for name, tensor in file.tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    data = path.read_bytes()
    path.write_bytes(data.replace(b"0" * 64, hashlib.sha256(data).hexdigest().encode()))
    images = np.random.default_rng(0).integers(0, 256, (4, 6, 6, 3), dtype=np.uint8)
    np.testing.assert_array_equal(Model(path).run(images), Model(file.build()).run(images))


def test_a_minimal_file_byte_for_byte() -> None:
    """One pixel of one channel through one ±1 weight: acc = -(2u - 255), and the bytes as the format lays them out."""
    file = PackedFile.start((1, 1, 1), name="m")
    file.node("image_conv2d", [0], ["y"], {"weight": pack_bits(np.array([[[[-1]]]]))}, **window(), **AFFINE)
    data = file.finish(1).build()
    assert data[:24] == bytes.fromhex("47475546 03000000 0100000000000000 1400000000000000")
    assert data[24:].startswith(b"\x14\0\0\0\0\0\0\0general.architecture\x08\0\0\0\x07\0\0\0\0\0\0\0bitedge")
    shape = b"\x13\0\0\0\0\0\0\0bitedge.input.shape\x09\0\0\0\x04\0\0\0\x03\0\0\0\0\0\0\0" + b"\x01\0\0\0" * 3
    assert data.count(shape) == 1
    entry = b"\x0d\0\0\0\0\0\0\0node.0.weight\x04\0\0\0" + b"\x01\0\0\0\0\0\0\0" * 4 + b"\x1b\0\0\0" + bytes(8)
    header_end = data.index(entry) + len(entry)
    start = -(-header_end // 32) * 32
    assert data[header_end:start] == bytes(start - header_end)
    assert data[start:] == b"\x01" + bytes(31)
    images = np.arange(256, dtype=np.uint8).reshape(256, 1, 1, 1)
    np.testing.assert_array_equal(Model(data).run(images)[:, 0], 255 - 2 * np.arange(256))
