"""Thresholds by enumeration: every kind of scale, pools in between, and the chains that must be left alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bitedge.export.ir import ops, reference
from bitedge.export.ir.graph import Graph, Kind, Node, Value
from bitedge.export.lowering.thresholds import find_thresholds

WEIGHT = np.array([1, -1, 1], np.int8).reshape(1, 1, 1, 3)


def norm(mean: float, weight: float, bias: float, *, variance: float = 1.0, channels: int = 1) -> ops.BatchNorm:
    def full(number: float) -> NDArray[np.float32]:
        return np.full(channels, number, np.float32)

    return ops.BatchNorm(full(mean), full(variance), full(weight), full(bias), 0.0)


def chain(*steps: ops.Op, weight: NDArray[np.int8] = WEIGHT, size: int = 1, **options: Any) -> Graph:
    """conv -> steps -> sign over bits of a map."""
    window = ops.Window(weight.shape[1:3])  # type: ignore[arg-type]
    nodes = [Node(ops.BinaryConv2d(weight, window, **options), ("x",), ("v0",), "conv")]
    for number, step in enumerate((*steps, ops.Sign()), start=1):
        nodes.append(Node(step, (f"v{number - 1}",), (f"v{number}",), f"step{number}"))
    return Graph("g", Value("x", Kind.BITS, (size, size, weight.shape[3])), tuple(nodes), nodes[-1].outputs[0])


def fused(graph: Graph) -> tuple[ops.BinaryConv2d, NDArray[np.int32]]:
    node = find_thresholds(graph).nodes[0]
    assert isinstance(node.op, ops.BinaryConv2d)
    epilogue = node.op.epilogue
    assert isinstance(epilogue, ops.Threshold)
    return node.op, epilogue.threshold


# acc takes -3, -1, 1, 3 without padding and every integer in between at a border, so the threshold counts all integers.
@pytest.mark.parametrize(
    ("mean", "scale", "bias", "threshold", "negated"),
    [
        (0.0, 1.0, 0.0, 0, False),  # sign(0) is +1
        (0.5, 1.0, 0.0, 1, False),
        (-1.0, 2.0, 0.0, -1, False),
        (0.0, -1.0, 0.0, 0, True),  # +1 iff acc <= 0, so iff -acc >= 0
        (1.0, -3.0, 0.0, -1, True),  # +1 iff acc <= 1, so iff -acc >= -1
        (0.0, 0.0, 1.0, -4, False),  # constant +1: below every sum
        (0.0, 0.0, -1.0, 4, False),  # constant -1: above every sum
        (0.0, 0.0, 0.0, -4, False),  # constant 0 is +1
        (0.0, 1e-30, 1.0, -4, False),  # so small that the bias decides
        (0.0, 1e-30, 0.0, 0, False),  # so small, but nothing else decides
        (100.0, 1.0, 0.0, 4, False),  # never reached
        (-100.0, -1.0, 0.0, 4, False),
        (-100.0, 1.0, 0.0, -4, False),  # always reached
    ],
)
def test_threshold_of_every_kind_of_scale(
    mean: float, scale: float, bias: float, threshold: int, negated: bool
) -> None:
    op, found = fused(chain(norm(mean, scale, bias)))
    assert found.tolist() == [threshold]
    np.testing.assert_array_equal(op.weight, -WEIGHT if negated else WEIGHT)


def random_bits(seed: int, *shape: int) -> NDArray[np.int8]:
    return np.random.default_rng(seed).choice([-1, 1], shape).astype(np.int8)


@pytest.mark.parametrize("pad_value", [0, 1, -1])
def test_one_threshold_serves_the_border_under_every_padding(pad_value: int) -> None:
    weight = random_bits(0, 8, 3, 3, 5)
    scales = np.array([1, -1, 0.1, -0.1, 0, 3, -3, 1e-6], np.float32)
    step = ops.BatchNorm(np.linspace(-6, 6, 8).astype(np.float32), np.ones(8, np.float32), scales, scales[::-1], 1e-3)
    nodes = (
        Node(ops.BinaryConv2d(weight, ops.Window((3, 3), (2, 1), (1, 2, 0, 1)), pad_value), ("x",), ("acc",)),
        Node(step, ("acc",), ("y",)),
        Node(ops.Sign(), ("y",), ("bits",)),
    )
    graph = Graph("g", Value("x", Kind.BITS, (6, 6, 5)), nodes, "bits")
    bits = random_bits(1, 20, 6, 6, 5)
    lowered = find_thresholds(graph)
    assert [node.op.name for node in lowered.nodes] == ["binary_conv2d"]
    np.testing.assert_array_equal(reference.evaluate(lowered, bits)["bits"], reference.evaluate(graph, bits)["bits"])


POOL = ops.MaxPool2d(ops.Window((2, 2), (2, 2), (1, 1, 0, 0)))
SCALES = np.array([1, -1, 0, 0.5, -0.5, 2], np.float32)


def mixed_norm(seed: int) -> ops.BatchNorm:
    random = np.random.default_rng(seed)
    return ops.BatchNorm(
        random.normal(0, 2, 6).astype("f4"), np.ones(6, "f4"), SCALES, random.normal(0, 1, 6).astype("f4"), 0
    )


@pytest.mark.parametrize(
    "steps",
    [
        (POOL, mixed_norm(0)),
        (mixed_norm(0), POOL),
        (mixed_norm(0), POOL, mixed_norm(1)),
        (mixed_norm(0), ops.Relu(), POOL, mixed_norm(1)),
        (POOL, ops.Prelu(np.full(1, 0.25, np.float32)), mixed_norm(2)),
        (mixed_norm(3), ops.Prelu(np.full(1, 0.25, np.float32)), mixed_norm(2)),
    ],
    ids=lambda steps: "-".join(step.name for step in steps),
)
def test_pool_moves_onto_bits_with_the_minimum_where_the_value_falls(steps: tuple[ops.Op, ...]) -> None:
    graph = chain(*steps, weight=random_bits(5, 6, 1, 1, 9), size=5)
    lowered = find_thresholds(graph)
    pooled = any(isinstance(step, ops.MaxPool2d) for step in steps)
    assert [node.op.name for node in lowered.nodes] == ["binary_conv2d", *(["max_pool2d"] if pooled else [])]
    bits = random_bits(6, 40, 5, 5, 9)
    np.testing.assert_array_equal(
        reference.evaluate(lowered, bits)[lowered.output], reference.evaluate(graph, bits)[graph.output]
    )


def test_falling_channels_pool_with_the_minimum() -> None:
    graph = chain(POOL, mixed_norm(0), weight=random_bits(5, 6, 1, 1, 9), size=5)
    pool = find_thresholds(graph).nodes[1].op
    assert isinstance(pool, ops.MaxPool2d)
    assert pool.min_channels is not None
    assert not (pool.min_channels & (SCALES > 0)).any()
    assert pool.min_channels[SCALES < 0].any()


def test_a_bit_that_is_no_step_is_left_alone() -> None:
    """A negative slope makes a valley: the bit rises, falls and rises again with the accumulator."""
    graph = chain(ops.Prelu(np.array([-1.0], np.float32)), norm(2.0, 1.0, 0.0))
    assert [node.op.name for node in find_thresholds(graph).nodes] == ["binary_conv2d", "prelu", "batch_norm", "sign"]


def test_a_value_with_two_readers_is_left_alone() -> None:
    graph = chain(norm(0.0, 1.0, 0.0))
    nodes = (*graph.nodes, Node(ops.Add(), ("v1", "v2"), ("sum",)))
    graph = Graph("g", graph.input, nodes, "sum")
    assert [node.op.name for node in find_thresholds(graph).nodes] == ["binary_conv2d", "batch_norm", "sign", "add"]


def test_a_bit_straight_after_the_product_has_threshold_zero() -> None:
    op, threshold = fused(chain())
    assert threshold.tolist() == [0]
    np.testing.assert_array_equal(op.weight, WEIGHT)
