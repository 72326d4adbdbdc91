"""Files whose container is wrong: each makes one change to a good file and says how it must be refused."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from tests.runtime.packed_file import PackedFile, small_model, string, value_bytes

from bitedge.runtime.errors import Status


@dataclass(frozen=True)
class Hostile:
    """A file that must be refused, with the status and the message."""

    name: str
    make: Callable[[], bytes]
    message: str
    status: Status = Status.FORMAT


def with_key(key: str | bytes, raw: bytes) -> Callable[[], bytes]:
    """The small model with one more key-value, given as raw bytes after the name, in front of the others."""

    def make() -> bytes:
        data = small_model().build()
        keys = struct.unpack_from("<Q", data, 16)[0]
        return data[:16] + struct.pack("<Q", keys + 1) + string(key) + raw + data[24:]

    return make


def header(at: int, code: str, number: int) -> Callable[[], bytes]:
    """The small model with a number of its header replaced."""
    return lambda: (data := small_model().build())[:at] + struct.pack(code, number) + data[at + struct.calcsize(code) :]


def tensor_entry(dims: tuple[int, ...], kind: int, offset: int, *, ndim: int | None = None) -> Callable[[], bytes]:
    """A file with no keys but the first, and a tensor entry made of raw numbers."""

    def make() -> bytes:
        count = len(dims) if ndim is None else ndim
        entry = string("node.0.weight") + struct.pack("<I", count) + struct.pack(f"<{len(dims)}Q", *dims)
        data = b"GGUF" + struct.pack("<IQQ", 3, 1, 2)
        data += string("general.architecture") + value_bytes("string", "bitedge")
        data += string("bitedge.format_version") + value_bytes("u32", 1)
        return data + entry + struct.pack("<IQ", kind, offset) + bytes(64)

    return make


def two_tensors(first: str, second: str, offset: int) -> Callable[[], bytes]:
    """A file with two tensors of 64 bytes, the second at a given offset."""

    def make() -> bytes:
        data = b"GGUF" + struct.pack("<IQQ", 3, 2, 2)
        data += string("general.architecture") + value_bytes("string", "bitedge")
        data += string("bitedge.format_version") + value_bytes("u32", 1)
        for name, at in ((first, 0), (second, offset)):
            data += string(name) + struct.pack("<IQIQ", 1, 16, 0, at)
        return data + bytes(256)

    return make


def changed(change: Callable[[PackedFile], object], *, signed: bool = True) -> Callable[[], bytes]:
    """The small model with one of its parts changed."""

    def make() -> bytes:
        file = small_model()
        change(file)
        return file.build(signed=signed)

    return make


def key(name: str, kind: str, value: object, *, signed: bool = True) -> Callable[[], bytes]:
    """The small model with one key set to something else."""
    return changed(lambda file: file.keys.__setitem__(name, (kind, value)), signed=signed)


def without(name: str, *, signed: bool = True) -> Callable[[], bytes]:
    """The small model without one of its keys."""
    return changed(lambda file: file.keys.pop(name), signed=signed)


def flipped_pixel() -> bytes:
    """The small model with the last byte of its weights changed and nothing else."""
    data = bytearray(small_model().build())
    data[-1] ^= 1
    return bytes(data)


def cut_tensor() -> bytes:
    """The small model without the end of its last tensor."""
    return small_model().build()[:-40]


CONTAINERS = [
    Hostile("empty", lambda: b"", "does not start with 'GGUF'"),
    Hostile("short_magic", lambda: b"GGU", "does not start with 'GGUF'"),
    Hostile("png", lambda: b"\x89PNG\r\n\x1a\n" + bytes(64), "does not start with 'GGUF'"),
    Hostile("gguf_version_2", header(4, "<I", 2), "GGUF version 2, expected 3"),
    Hostile("big_endian", header(4, ">I", 3), "GGUF version 50331648, expected 3"),
    Hostile("header_only", lambda: b"GGUF" + struct.pack("<IQ", 3, 0), "truncated: the header needs bytes up to 24"),
    Hostile("many_tensors", header(8, "<Q", 16385), "16385 tensors, at most 16384"),
    Hostile("all_tensors", header(8, "<Q", 2**64 - 1), "18446744073709551615 tensors"),
    Hostile("many_keys", header(16, "<Q", 65537), "65537 key-values, at most 65536"),
    Hostile("endless_key", with_key("k" * 9, struct.pack("<IQ", 8, 2**63)), "string of 9223372036854775808 bytes"),
    Hostile("long_string", with_key("k", value_bytes("string", "x" * (2**20 + 1))), "string of 1048577 bytes"),
    Hostile("cut_string", with_key("k", struct.pack("<IQ", 8, 2**20)), "truncated: key 'k' needs bytes up to"),
    Hostile("not_utf8", with_key("k", value_bytes("string", b"\xc3\x28")), "key 'k' is not UTF-8 text"),
    Hostile("overlong_utf8", with_key("ok", value_bytes("string", b"\xc0\x80")), "key 'ok' is not UTF-8 text"),
    Hostile("surrogate", with_key("sur", value_bytes("string", b"\xed\xa0\x80")), "key 'sur' is not UTF-8 text"),
    Hostile("nul", with_key("nul", value_bytes("string", b"a\0b")), "key 'nul' is not UTF-8 text"),
    Hostile("key_not_utf8", with_key(b"\xff", value_bytes("u32", 1)), "key 0 is not UTF-8 text"),
    Hostile("value_type", with_key("k", struct.pack("<I", 13)), "unknown value type 13"),
    Hostile("element_type", with_key("k", struct.pack("<IIQ", 9, 99, 1)), "unknown value type 99"),
    Hostile("nested", with_key("k", struct.pack("<IIQ", 9, 9, 1)), "an array of arrays"),
    Hostile("long_array", with_key("k", struct.pack("<IIQ", 9, 0, 2**20 + 1)), "has 1048577 elements"),
    Hostile("endless_array", with_key("k", struct.pack("<IIQ", 9, 11, 2**61)), "has 2305843009213693952 elements"),
    Hostile("cut_array", with_key("array", struct.pack("<IIQ", 9, 11, 2**20)), "truncated: key 'array' needs bytes"),
    Hostile("bool", with_key("k", struct.pack("<IB", 7, 2)), "a bool of value 2"),
    Hostile("twice", with_key("general.name", value_bytes("string", "x")), "the key 'general.name' appears twice"),
    Hostile("unnamed_key", with_key("", value_bytes("u32", 1)), "key 0 has an empty name"),
    Hostile("alignment", key("general.alignment", "u32", 64), "'general.alignment' is not the u32 32"),
    Hostile("scalar_tensor", tensor_entry((), 0, 0), "has 0 dimensions, expected 1 to 4"),
    Hostile("deep_tensor", tensor_entry((1, 1, 1, 1, 1), 0, 0), "has 5 dimensions"),
    Hostile("many_dimensions", tensor_entry((1,), 0, 0, ndim=2**32 - 1), "has 4294967295 dimensions"),
    Hostile("void_tensor", tensor_entry((4, 0), 0, 0), "has a dimension of size 0"),
    Hostile("overflow_extent", tensor_entry((2**32, 2**32, 2), 0, 0), "size or offset that overflows"),
    Hostile("quantized", tensor_entry((32,), 2, 0), "has the type 2, expected F32, F16, I32 or I64"),
    Hostile("misaligned", tensor_entry((4,), 0, 16), "starts at offset 16, which is no multiple of 32"),
    Hostile("far_offset", tensor_entry((4,), 0, 2**40), "truncated: tensor 'node.0.weight' needs bytes up to 10995"),
    Hostile("overflow_offset", tensor_entry((5,), 27, 2**64 - 32), "tensor 'node.0.weight' has a size or offset"),
    Hostile("large_tensor", tensor_entry((2**50,), 0, 0), "tensor 'node.0.weight' needs bytes up to 4503599627370656"),
    Hostile("overlap", two_tensors("a", "b", 32), "tensors 'a' and 'b' overlap"),
    Hostile("same_place", two_tensors("c", "d", 0), "tensors 'c' and 'd' overlap"),
    Hostile("same_name", two_tensors("a", "a", 64), "the tensor 'a' appears twice"),
    Hostile("cut_tensor", cut_tensor, "truncated: tensor 'node.3.weight' needs bytes up to"),
    Hostile("other_architecture", key("general.architecture", "string", "llama"), "of the architecture 'llama'"),
    Hostile("no_architecture", without("general.architecture"), "the key 'general.architecture' is missing"),
    Hostile("newer", key("bitedge.format_version", "u32", 3), "format version 3 is newer than 2", Status.VERSION),
    Hostile("version_0", key("bitedge.format_version", "u32", 0), "format version 0 does not exist"),
    Hostile("version_type", key("bitedge.format_version", "i32", 1), "'bitedge.format_version' is i32, expected u32"),
    Hostile("version_array", key("bitedge.format_version", "u32[]", [1]), "is u32[], expected u32"),
    Hostile("no_sha", without("bitedge.sha256", signed=False), "the key 'bitedge.sha256' is missing"),
    Hostile("short_sha", key("bitedge.sha256", "string", "0" * 63, signed=False), "is not 64 lower-case hexadecimal"),
    Hostile("upper_sha", key("bitedge.sha256", "string", "A" * 64, signed=False), "is not 64 lower-case hexadecimal"),
    Hostile("wrong_sha", key("bitedge.sha256", "string", "0" * 64, signed=False), "damaged: its", Status.CHECKSUM),
    Hostile("flipped", flipped_pixel, "damaged: its SHA-256 is", Status.CHECKSUM),
]
