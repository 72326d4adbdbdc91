"""Ten thousand requests that nobody should send: damaged images, and damaged HTTP, from one seed."""

from __future__ import annotations

import json
import random
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image
from tests.serve.pictures import encoded, pixels


@dataclass
class Hostile:
    """One request."""

    path: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    method: str = "POST"


def seeds() -> list[bytes]:
    """Whole images of every format and odd mode, to be damaged."""
    small = pixels(0, 24, 40)
    exif = Image.Exif()
    exif[0x0112] = 6
    frames = [Image.fromarray(pixels(seed, 16, 16)) for seed in range(2)]
    with_alpha = np.dstack([small, np.full(small.shape[:2], 128, np.uint8)])
    sixteen = np.arange(32 * 32, dtype=np.uint16).reshape(32, 32) * 64
    return [
        encoded(small, "PNG"),
        encoded(with_alpha, "PNG"),
        encoded(sixteen, "PNG"),
        encoded(small, "PNG", exif=exif),
        encoded(frames[0], "PNG", save_all=True, append_images=frames[1:]),
        encoded(small, "JPEG"),
        encoded(small, "JPEG", progressive=True, exif=exif),
        encoded(Image.fromarray(small).convert("CMYK"), "JPEG"),
        encoded(small, "WEBP"),
        encoded(small, "WEBP", lossless=True),
        encoded(frames[0], "WEBP", save_all=True, append_images=frames[1:]),
        encoded(small, "BMP"),
        encoded(Image.fromarray(small).convert("P"), "BMP"),
    ]


def png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def bombs() -> list[bytes]:
    """Small files that claim, or unpack to, a great deal."""
    start = b"\x89PNG\r\n\x1a\n"
    size = struct.pack(">IIBBBBB", 3900, 3900, 8, 2, 0, 0, 0)
    zeros = zlib.compress(bytes((3900 * 3 + 1) * 3900), 9)
    text = png_chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(50_000_000), 9))
    small = struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0)
    huge = struct.pack(">IIBBBBB", 2**31 - 1, 2**31 - 1, 8, 2, 0, 0, 0)
    return [
        start + png_chunk(b"IHDR", size) + png_chunk(b"IDAT", zeros) + png_chunk(b"IEND", b""),
        start + png_chunk(b"IHDR", huge) + png_chunk(b"IDAT", zeros) + png_chunk(b"IEND", b""),
        start + png_chunk(b"IHDR", small) + text + png_chunk(b"IDAT", zlib.compress(bytes(200))),
        b"BM" + struct.pack("<IHHIIiiHHIIiiII", 54, 0, 0, 54, 40, 2**31 - 1, -(2**31), 1, 24, 0, 0, 0, 0, 0, 0),
    ]


def damage(data: bytes, dice: random.Random) -> bytes:
    """Flip, cut, repeat, insert or overwrite, at random."""
    changed = bytearray(data)
    for _ in range(dice.randint(1, 4)):
        at, length = dice.randrange(len(changed) + 1), dice.randint(1, 16)
        kind = dice.randrange(5)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << dice.randrange(8)
        elif kind == 1:
            del changed[at:]
        elif kind == 2:
            changed[at:at] = changed[at : at + length]
        elif kind == 3:
            changed[at:at] = dice.randbytes(length)
        else:
            changed[at : at + length] = dice.choice([b"\xff", b"\0", b"\x7f"]) * length
    return bytes(changed)


def tensor_request() -> dict[str, Any]:
    data = np.arange(32 * 32 * 3) % 256
    inputs = [{"name": "image", "shape": [1, 32, 32, 3], "datatype": "UINT8", "data": data.tolist()}]
    outputs = [{"name": "output", "parameters": {"classification": 3, "binary_data": True}}]
    parameters = {"timeout": 10_000_000, "binary_data_output": False, "priority": 1}
    return {"id": "1", "parameters": parameters, "inputs": inputs, "outputs": outputs}


ODD_VALUES: tuple[Any, ...] = (None, -1, 2**70, 1e308, True, "", "x" * 2000, [], {}, [[]], [1, [2]], float("inf"), "\0")


def damage_json(value: Any, dice: random.Random) -> Any:
    """Put something odd somewhere into a JSON value."""
    if isinstance(value, dict) and value and dice.random() < 0.9:
        key = dice.choice(list(value))
        return {**value, key: damage_json(value[key], dice)}
    if isinstance(value, list) and value and len(value) < 100 and dice.random() < 0.8:
        at = dice.randrange(len(value))
        return [*value[:at], damage_json(value[at], dice), *value[at + 1 :]]
    return dice.choice(ODD_VALUES)


def requests(count: int, seed: int) -> Iterator[Hostile]:
    """The requests, always the same ones for a seed."""
    dice = random.Random(seed)
    images, bombs_ = seeds(), bombs()
    whole = json.dumps(tensor_request()).encode()
    infer = "/v2/models/first/infer"
    for number in range(count):
        kind = dice.randrange(20)
        image = damage(dice.choice(images), dice)
        if number % 500 == 0:
            yield Hostile("/v1/classify", bombs_[number // 500 % len(bombs_)])
        elif kind < 11:
            yield Hostile(dice.choice(["/v1/classify", "/v1/classify?top_k=3", "/v1/preview"]), image)
        elif kind < 14:
            form = (
                b'--b\r\nContent-Disposition: form-data; name="image"; filename="x"\r\n\r\n' + image + b"\r\n--b--\r\n"
            )
            path = dice.choice(["/v1/classify", "/v1/classify/batch"])
            yield Hostile(path, damage(form, dice), {"content-type": "multipart/form-data; boundary=b"})
        elif kind < 16:
            yield Hostile(infer, json.dumps(damage_json(tensor_request(), dice)).encode())
        elif kind == 16:
            yield Hostile(infer, damage(whole, dice), {"inference-header-content-length": str(dice.randint(-5, 9000))})
        elif kind == 17:
            packed = damage(zlib.compress(whole), dice)
            yield Hostile(infer, packed, {"content-encoding": dice.choice(["deflate", "gzip", "br"])})
        elif kind == 18:
            path = dice.choice(
                ["/v2/repository/index", f"/v1/classify?top_k={dice.choice(ODD_VALUES)}", "/v2/models/%00/infer"]
            )
            yield Hostile(path.replace("\0", "%00"), dice.randbytes(30))
        else:
            yield Hostile(
                f"/v1/models/{dice.randbytes(6).hex()}", b"", method=dice.choice(["GET", "PUT", "DELETE", "OPTIONS"])
            )
