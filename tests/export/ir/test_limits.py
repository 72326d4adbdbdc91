"""The limits of a graph are the same in the exporter, in the core and in the specification."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from bitedge.export import ExportError
from bitedge.export.ir import limits, ops
from bitedge.export.ir.graph import Graph, Kind, Node, Value
from bitedge.export.ir.shapes import infer

ROOT = Path(__file__).parents[3]
NAMES = {
    "kNodes": limits.NODES,
    "kValueElements": limits.VALUE_ELEMENTS,
    "kWindow": limits.WINDOW,
    "kTaps": limits.TAPS,
    "kImageTaps": limits.IMAGE_TAPS,
    "kSteps": limits.STEPS,
}


def core_limits() -> dict[str, int]:
    header = (ROOT / "runtime" / "src" / "file" / "limits.h").read_text(encoding="utf-8")
    found = {}
    for name, text in re.findall(r"constexpr \w+ (k\w+) = ([^;]+);", header):
        number = re.sub(r"uint64_t\((\d+)\)", r"\1", text)
        base, _, shift = number.partition("<<")
        found[name] = int(base) << int(shift or 0)
    return found


def test_the_core_has_the_same_limits() -> None:
    core = core_limits()
    assert {name: core[name] for name in NAMES} == NAMES


@pytest.mark.parametrize(
    ("words", "number"),
    [
        ("4,096 nodes", limits.NODES),
        ("2^28 elements per value", limits.VALUE_ELEMENTS),
        ("65,535 for any kernel", limits.WINDOW),
        ("2^23 taps per output", limits.TAPS),
        ("2^16 for `image_conv2d`", limits.IMAGE_TAPS),
        ("1 to 16 of them", limits.STEPS),
    ],
)
def test_the_specification_has_the_same_limits(words: str, number: int) -> None:
    text = " ".join((ROOT / "docs" / "format.md").read_text(encoding="utf-8").split())
    assert words in text
    stated = words.removeprefix("1 to ").split()[0].replace(",", "")
    assert (2 ** int(stated[2:]) if "^" in stated else int(stated)) == number


def test_a_value_beyond_the_limit_is_refused() -> None:
    wide = Graph("g", Value("x", Kind.FLOAT, (2**14, 2**14, 1)), (), "x")
    relu = Node(ops.Relu(), ("x",), ("y",), "relu")
    infer(wide.with_nodes([relu]))
    doubled = Node(ops.GatherChannels(np.zeros(2, np.int32)), ("x",), ("y",), "double")
    with pytest.raises(ExportError, match=r"double: .* at most 268435456 elements"):
        infer(wide.with_nodes([doubled]))
