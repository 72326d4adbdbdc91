"""Lowering of shifts, scales, clamps, functions, products, channels: exact, and folded where they can be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bitedge.export import lower
from bitedge.export.ir import ops, reference
from bitedge.export.ir.graph import Graph, Kind, Node, Value

RANDOM = np.random.default_rng(11)
CHANNELS = 6


def floats(*shape: int) -> NDArray[np.float32]:
    return RANDOM.standard_normal(shape).astype(np.float32)


def signs(*shape: int) -> NDArray[np.int8]:
    return RANDOM.choice([-1, 1], shape).astype(np.int8)


def norm(channels: int = CHANNELS) -> ops.BatchNorm:
    return ops.BatchNorm(
        floats(channels), (np.abs(floats(channels)) + 1).astype(np.float32), floats(channels), floats(channels), 1e-5
    )


def network(*nodes: tuple[ops.Op, Sequence[str], str], output: str | None = None) -> Graph:
    """A graph of nodes (op, inputs, output) on a float map."""
    made = tuple(Node(op, tuple(inputs), (name,), name) for op, inputs, name in nodes)
    return Graph("test", Value("x", Kind.FLOAT, (5, 5, CHANNELS)), made, output or made[-1].outputs[0])


def binary(outputs: int = CHANNELS, channels: int = CHANNELS) -> ops.BinaryConv2d:
    return ops.BinaryConv2d(signs(outputs, 3, 3, channels), ops.Window((3, 3), pads=(1, 1, 1, 1)))


def held(graph: Graph) -> Graph:
    """Lower, and hold every value that keeps its name to the captured graph's, bit for bit."""
    lowered = lower(graph)
    x = floats(3, 5, 5, graph.input.shape[2])
    before, after = reference.evaluate(graph, x), reference.evaluate(lowered, x)
    assert graph.output in after
    for name in before.keys() & after.keys():
        np.testing.assert_array_equal(after[name], before[name].astype(after[name].dtype), err_msg=name)
    return lowered


def kinds(lowered: Graph) -> list[str]:
    return [node.op.name for node in lowered.nodes]


POINTWISE: dict[str, list[ops.Op]] = {
    "shift": [ops.Shift(floats(CHANNELS))],
    "scale": [ops.Scale(floats(CHANNELS))],
    "XNOR-Net's scale, BatchNorm": [ops.Scale(np.abs(floats(CHANNELS))), norm()],
    "hardtanh": [norm(), ops.Clamp(-1, 1)],
    "relu6 between shifts": [ops.Shift(floats(CHANNELS)), ops.Clamp(0, 6), ops.Shift(-np.abs(floats(CHANNELS)))],
    "RPReLU": [ops.Shift(floats(CHANNELS)), ops.Prelu(np.abs(floats(CHANNELS))), ops.Shift(floats(1))],
    "tanh": [norm(), ops.Function("tanh"), ops.Shift(floats(1) / 4)],
    "hardsigmoid": [norm(), ops.Function("hardsigmoid"), ops.Shift(np.full(1, -0.4, np.float32))],
    "a clamp that leaves one sign": [ops.Clamp(0.5, 3)],
}


@pytest.mark.parametrize("case", POINTWISE)
def test_what_lies_between_an_integer_layer_and_a_sign_is_one_threshold(case: str) -> None:
    nodes: list[tuple[ops.Op, Sequence[str], str]] = [(ops.Sign(), ["x"], "b"), (binary(), ["b"], "y0")]
    for number, op in enumerate(POINTWISE[case], start=1):
        nodes.append((op, [f"y{number - 1}"], f"y{number}"))
    nodes += [(ops.Sign(), [nodes[-1][2]], "s"), (binary(), ["s"], "z")]
    lowered = held(network(*nodes))
    assert kinds(lowered) == ["elementwise", "binary_conv2d", "binary_conv2d"]
    assert isinstance(ops.epilogue_of(lowered.nodes[1].op), ops.Threshold)


def test_a_strict_comparison_folds_as_it_is() -> None:
    """An accumulator of exactly 0 gives -1 there, as torch's `x > 0` does."""
    graph = network(
        (ops.Sign(), ["x"], "b"), (binary(), ["b"], "y"), (ops.Sign(at_zero=-1), ["y"], "s"), (binary(), ["s"], "z")
    )
    (first, second, _) = lower(graph).nodes
    x = floats(4, 5, 5, CHANNELS)
    bits = reference.evaluate_node(first, [x])
    (acc,) = reference.evaluate_node(Node(graph.nodes[1].op, ("b",), ("y",)), bits)
    assert (acc == 0).any()
    np.testing.assert_array_equal(reference.evaluate_node(second, bits)[0], np.where(acc > 0, 1, -1))


def test_a_function_that_is_no_step_stays_a_function() -> None:
    graph = network(
        (ops.Sign(), ["x"], "b"),
        (binary(), ["b"], "y"),
        (ops.Function("hardswish"), ["y"], "h"),
        (ops.Shift(np.full(1, 0.2, np.float32)), ["h"], "t"),
        (ops.Sign(), ["t"], "s"),
        (binary(), ["s"], "z"),
    )
    lowered = held(graph)
    epilogue = ops.epilogue_of(lowered.nodes[1].op)
    assert isinstance(epilogue, ops.Steps)
    assert [step.kind for step in epilogue.steps] == ["hardswish", "fma"]
    assert epilogue.emit == "bits"


def test_hardtanh_before_a_sign_of_floats_vanishes() -> None:
    conv = ops.Conv2d(floats(CHANNELS, 1, 1, CHANNELS))
    nodes = [(conv, ["x"], "y"), (norm(), ["y"], "n"), (ops.Clamp(-1, 1), ["n"], "h"), (ops.Sign(), ["h"], "s")]
    lowered = held(network(*nodes, (binary(), ["s"], "z")))
    assert kinds(lowered) == ["conv2d", "binary_conv2d"]
    assert isinstance(ops.epilogue_of(lowered.nodes[0].op), ops.Affine)
    off_centre = held(network(*nodes[:2], (ops.Clamp(0.1, 1), ["n"], "h"), nodes[3], (binary(), ["s"], "z")))
    assert isinstance(ops.epilogue_of(off_centre.nodes[0].op), ops.Steps)


def test_reactnets_block() -> None:
    """RSign, binary convolution, BatchNorm, shortcut, RPReLU: one epilogue, and a shift before the next sign."""
    graph = network(
        (ops.Shift(floats(CHANNELS)), ["x"], "a"),
        (ops.Sign(), ["a"], "s"),
        (binary(), ["s"], "c"),
        (norm(), ["c"], "n"),
        (ops.Add(), ["n", "x"], "r"),
        (ops.Shift(floats(CHANNELS)), ["r"], "p1"),
        (ops.Prelu(floats(CHANNELS)), ["p1"], "p2"),
        (ops.Shift(floats(CHANNELS)), ["p2"], "p3"),
    )
    lowered = held(graph)
    assert kinds(lowered) == ["elementwise", "binary_conv2d"]
    epilogue = ops.epilogue_of(lowered.nodes[1].op)
    assert isinstance(epilogue, ops.Steps)
    assert [step.kind for step in epilogue.steps] == ["fma", "add", "fma", "prelu", "fma"]


def test_squeeze_and_excitation_multiplies_in_the_epilogue() -> None:
    graph = network(
        (ops.Conv2d(floats(CHANNELS, 1, 1, CHANNELS)), ["x"], "y"),
        (ops.AdaptiveAvgPool2d((1, 1)), ["y"], "m"),
        (ops.Conv2d(floats(CHANNELS, 1, 1, CHANNELS)), ["m"], "w"),
        (ops.Function("sigmoid"), ["w"], "g"),
        (ops.Multiply(), ["g", "y"], "z"),
    )
    lowered = held(graph)
    assert kinds(lowered) == ["conv2d", "avg_pool2d", "conv2d", "elementwise"]
    assert lowered.nodes[-1].inputs == ("y", "g")


def test_sum_of_many_branches() -> None:
    convs = [(ops.Conv2d(floats(CHANNELS, 1, 1, CHANNELS)), ["x"], f"y{i}") for i in range(4)]
    lowered = held(
        network(
            *convs,
            (ops.Add(), ["y0", "y1"], "s1"),
            (ops.Add(), ["s1", "y2"], "s2"),
            (ops.Add(), ["y3", "s2"], "s3"),
        )
    )
    assert sum(kind == "conv2d" for kind in kinds(lowered)) == 4


def test_a_value_that_others_read_first_can_still_give_its_sign() -> None:
    """The pooling reads y before the sign does; the fused layer must come before both."""
    graph = network(
        (ops.Conv2d(floats(CHANNELS, 1, 1, CHANNELS)), ["x"], "y"),
        (ops.AvgPool2d(ops.Window((5, 5), (5, 5))), ["y"], "m"),
        (ops.Sign(), ["y"], "s"),
        (ops.BinaryConv2d(signs(CHANNELS, 5, 5, CHANNELS), ops.Window((5, 5))), ["s"], "z"),
        (ops.Add(), ["m", "z"], "r"),
    )
    assert kinds(held(graph))[0] == "conv2d"


PERMUTATION = np.array([0, 3, 1, 4, 2, 5], np.int32)


def gather_cases() -> dict[str, tuple[Graph, int]]:
    gather = ops.GatherChannels(PERMUTATION)
    return {
        "into the layer before": (
            network((ops.Sign(), ["x"], "b"), (binary(), ["b"], "y"), (norm(), ["y"], "n"), (gather, ["n"], "z")),
            0,
        ),
        "a slice into the layer before": (
            network((ops.Conv2d(floats(6, 1, 1, 6)), ["x"], "y"), (ops.GatherChannels(PERMUTATION[1:3]), ["y"], "z")),
            0,
        ),
        "a permutation of bits into the layer behind": (
            network((ops.Sign(), ["x"], "s"), (gather, ["s"], "g"), (binary(), ["g"], "z")),
            0,
        ),
        "before a sign, whose bits keep their name": (
            network((gather, ["x"], "g"), (ops.Sign(), ["g"], "s"), (binary(), ["s"], "z")),
            1,
        ),
        "into all layers behind": (
            network(
                (gather, ["x"], "g"),
                (ops.Conv2d(floats(6, 1, 1, 6)), ["g"], "y"),
                (ops.Conv2d(floats(6, 1, 1, 6)), ["g"], "w"),
                (ops.Add(), ["y", "w"], "z"),
            ),
            0,
        ),
        "two gathers are one": (
            network((gather, ["x"], "g"), (ops.GatherChannels(np.array([-1, 2, 2], np.int32)), ["g"], "z")),
            1,
        ),
        "one that changes nothing": (
            network((ops.GatherChannels(np.arange(6, dtype=np.int32)), ["x"], "g"), (ops.Relu(), ["g"], "z")),
            0,
        ),
        "before a grouped layer": (
            network(
                (gather, ["x"], "g"),
                (ops.Conv2d(floats(6, 1, 1, 3), ops.Window(groups=2)), ["g"], "z"),
            ),
            1,
        ),
        "a slice of bits": (
            network(
                (ops.Sign(), ["x"], "b"),
                (ops.GatherChannels(np.array([4, 2, 0], np.int32)), ["b"], "g"),
                (binary(4, 3), ["g"], "z"),
            ),
            1,
        ),
    }


@pytest.mark.parametrize("case", gather_cases())
def test_gathers_fold_into_weights(case: str) -> None:
    graph, left = gather_cases()[case]
    lowered = lower(graph)
    x = floats(3, 5, 5, CHANNELS)
    np.testing.assert_allclose(reference.run(lowered, x), reference.run(graph, x), rtol=1e-5, atol=1e-6)
    assert kinds(lowered).count("gather_channels") == left


def test_bits_that_meet_floats_in_a_concat_are_written_out() -> None:
    graph = network((ops.Sign(), ["x"], "b"), (ops.Concat(), ["b", "x"], "z"))
    assert kinds(held(graph)) == ["elementwise", "elementwise", "concat"]
    only_bits = network((ops.Sign(), ["x"], "b"), (ops.Concat(), ["b", "b"], "c"), (binary(4, 12), ["c"], "z"))
    assert kinds(held(only_bits)) == ["elementwise", "concat", "binary_conv2d"]


def test_an_adaptive_pooling_whose_parts_are_alike_is_an_ordinary_one() -> None:
    for size, expected in (((1, 1), "avg_pool2d"), ((5, 1), "avg_pool2d"), ((2, 2), "adaptive_avg_pool2d")):
        lowered = held(network((ops.AdaptiveAvgPool2d(size), ["x"], "z")))
        assert kinds(lowered) == [expected]


def exact_cases() -> Any:
    return [ops.Shift(floats(1)), ops.Scale(floats(1)), ops.Clamp(-1, 2), ops.Function("silu")]


@pytest.mark.parametrize("op", exact_cases(), ids=lambda op: op.name)
def test_a_flatten_sinks_through_what_is_the_same_everywhere(op: ops.Op) -> None:
    graph = network(
        (ops.Flatten(), ["x"], "f"), (op, ["f"], "a"), (ops.Conv2d(floats(4, 1, 1, 25 * CHANNELS)), ["a"], "z")
    )
    lowered = lower(graph)
    x = floats(2, 5, 5, CHANNELS)
    np.testing.assert_allclose(reference.run(lowered, x), reference.run(graph, x), rtol=1e-4, atol=1e-5)
