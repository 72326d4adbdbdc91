"""Networks in C against the core and the reference: every operator, every padding, random networks."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from tests.export.forced import core_differences
from tests.export.formats.c.networks import V2_STEPS, bundle_of, float_graph
from tests.export.padded_graphs import WINDOWS, padded_graph
from tests.export.random_networks import Case, cases

from bitedge.export import ExportError
from bitedge.export.capture.capture import trace
from bitedge.export.formats.c import parts
from bitedge.export.formats.c.network import generate
from bitedge.export.formats.c.writer import write
from bitedge.export.formats.gguf import writer as gguf_writer
from bitedge.export.ir import ops, reference
from bitedge.export.ir.exactness import exact_values
from bitedge.export.ir.graph import Graph, Kind, Node, Value
from bitedge.export.lowering.lower import lower
from bitedge.export.verify.engines.c import CSession
from bitedge.runtime import Model

QUICK = ("-O0",)


def session(graph: Graph, folder: Path, flags: tuple[str, ...] = QUICK) -> CSession:
    write(bundle_of(graph), folder / "c")
    return CSession(folder / "c", flags=(*flags, "-Wall", "-Wextra", "-Werror"))


@settings(max_examples=12, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(cases())
def test_random_networks_agree_with_the_core(case: Case) -> None:
    lowered = lower(trace(case.module, case.shape, preprocessing=case.preprocessing).graph)
    with tempfile.TemporaryDirectory() as folder:
        gguf_writer.write(bundle_of(lowered), Path(folder) / "model.gguf")
        core = Model(Path(folder) / "model.gguf").activations(case.images)
        values = session(lowered, Path(folder)).activations(case.images)
    values[lowered.input.name] = case.images
    assert core_differences(lowered, values) == []
    for name in exact_values(lowered) & set(values):
        np.testing.assert_array_equal(values[name], core[name].reshape(values[name].shape), err_msg=name)


@pytest.mark.parametrize(("pad_value", "channels"), [(0, 8), (1, 40), (-1, 40)])
@pytest.mark.parametrize("window", WINDOWS)
def test_every_padding(window: str, pad_value: int, channels: int, tmp_path: Path) -> None:
    graph = padded_graph(WINDOWS[window], pad_value, threshold=pad_value < 1, channels=channels)
    images = np.random.default_rng(1).standard_normal((2, *graph.input.shape)).astype(np.float32)
    values = session(graph, tmp_path).activations(images)
    for name, want in reference.evaluate(graph, images).items():
        if name != graph.input.name:
            np.testing.assert_array_equal(values[name], want, err_msg=name)


@pytest.mark.parametrize("portable", [True, False])
@pytest.mark.parametrize("channels", [1, 31, 32, 33, 255 * 32, 256 * 32 + 5, 600 * 32])
def test_dot_products_of_every_length(channels: int, portable: bool, tmp_path: Path) -> None:
    """Lengths around the block of 8 words, around 31 blocks, and a threshold that does not fit 16 bits."""
    random = np.random.default_rng(channels)
    weight = random.choice(np.array([-1, 1], np.int8), (5, 1, 1, channels))
    limits = np.array([-channels, channels + 1, 0, 1, -3], np.int32)
    nodes = (
        Node(ops.Elementwise(ops.Affine(emit="bits")), ("image",), ("bits",), "sign"),
        Node(ops.BinaryConv2d(weight, ops.Window(), 0, ops.Threshold(limits)), ("bits",), ("above",), "conv"),
        Node(ops.BinaryConv2d(weight, ops.Window(), 0, ops.Affine()), ("bits",), ("sums",), "sums"),
        Node(ops.Elementwise(ops.Affine()), ("sums", "above"), ("answer",), "sum"),
    )
    graph = Graph("dots", Value("image", Kind.FLOAT, (1, 1, channels)), nodes, "answer")
    images = random.standard_normal((4, 1, 1, channels)).astype(np.float32)
    images[0] = np.where(weight[0] > 0, 1, -1)  # as far as a sum can go, both ways
    images[1] = -images[0]
    flags = (*QUICK, "-DBITEDGE_PORTABLE") if portable else (*QUICK, "-mpopcnt")
    np.testing.assert_array_equal(session(graph, tmp_path, flags).run(images), reference.run(graph, images))


@pytest.mark.parametrize("case", V2_STEPS)
def test_steps_of_an_epilogue(case: str, tmp_path: Path) -> None:
    graph = float_graph(*V2_STEPS[case])
    images = np.random.default_rng(2).normal(0, 4, (3, *graph.input.shape)).astype(np.float32)
    got, want = session(graph, tmp_path).run(images), reference.run(graph, images)
    if graph.output in exact_values(graph):
        np.testing.assert_array_equal(got, want)
    np.testing.assert_allclose(got, want, rtol=3e-6, atol=1e-6)


def test_half_precision(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    weight = random.normal(0, 1, (4, 3, 3, 6)).astype(np.float16)
    weight.reshape(-1)[:3] = (6e-8, -6e-8, 65504)  # subnormal, and the largest
    graph = float_graph(Node(ops.Conv2d(weight, ops.Window((3, 3)), epilogue=ops.Affine()), ("image",), ("y",), "conv"))
    images = random.standard_normal((2, *graph.input.shape)).astype(np.float32)
    np.testing.assert_allclose(session(graph, tmp_path).run(images), reference.run(graph, images), rtol=2e-6, atol=2e-2)


def test_what_has_no_c_is_refused_by_name() -> None:
    gelu = ops.Elementwise(ops.Steps((ops.Step("gelu"),)))
    with pytest.raises(ExportError, match=r"'act'.*no activation gelu"):
        generate(bundle_of(float_graph(Node(gelu, ("image",), ("y",), "act"))))


def test_fma_rounds_once(tmp_path: Path) -> None:
    """The integer form against the C library's, with ties, cancellation, subnormals and overflow among the numbers."""
    (tmp_path / "fma.c").write_text(parts.part("start.c") + parts.part("fma.c"), encoding="utf-8")
    (tmp_path / "bitedge_mcu.h").write_text(parts.part("bitedge_mcu.h"), encoding="utf-8")
    library = tmp_path / "libfma.so"
    subprocess.run(["cc", "-O2", "-std=c99", "-shared", "-fPIC", "-o", library, tmp_path / "fma.c"], check=True)
    ours, theirs = ctypes.CDLL(str(library)).bitedge_fma, ctypes.CDLL("libm.so.6").fmaf
    for function in (ours, theirs):
        function.argtypes, function.restype = [ctypes.c_float] * 3, ctypes.c_float
    random = np.random.default_rng(0)
    count = 60_000
    x, y, z = random.integers(0, 2**32, (3, count), np.uint32).view(np.float32)
    near = np.ldexp(random.integers(-(2**24), 2**24, (3, count)), random.integers(-40, 10, (3, count))).astype(
        np.float32
    )
    cancelling = near.copy()
    cancelling[2] = -(near[0].astype(np.float64) * near[1]).astype(np.float32)
    tiny = np.ldexp(random.integers(-(2**24), 2**24, (3, count)), random.integers(-160, -60, (3, count)))
    tiny[1] = np.ldexp(tiny[1], 60)
    for group in (np.stack([x, y, z]), near, cancelling, tiny.astype(np.float32)):
        group = group[:, np.isfinite(group).all(axis=0)]
        for a, b, c in group.T.tolist():
            assert ours(a, b, c) == theirs(a, b, c), (a.hex(), b.hex(), c.hex())
