"""Operators against torch: the numpy reference and shape inference give what torch gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from bitedge.export import ExportError
from bitedge.export.ir import ops, reference
from bitedge.export.ir.epilogue import from_steps, steps_of
from bitedge.export.ir.graph import Graph, Kind, Node, Value
from bitedge.export.ir.shapes import infer, infer_node

SHAPE = (7, 5, 6)
ONE = np.array([0.5], np.float32)
PER_CHANNEL = np.linspace(-1.5, 2, 6, dtype=np.float32)


def evaluate(op: ops.Op, *arrays: NDArray[Any]) -> NDArray[Any]:
    """Run one operator over maps; its inferred shape must be the shape that comes out."""
    names = tuple(f"x{i}" for i in range(len(arrays)))
    made = reference.evaluate_node(Node(op, names, ("y",), "layer"), arrays)[0]
    value = infer_one(op, *(array.shape[1:] for array in arrays))
    assert made.shape[1:] == value.shape
    return made


def infer_one(op: ops.Op, *shapes: Any, kind: Kind = Kind.FLOAT) -> Value:
    graph = Graph("n", Value("x0", kind, shapes[0]), (), "x0")
    if len(shapes) == 1:
        return infer(graph.with_nodes([Node(op, ("x0",), ("y",), "layer")]))["y"]
    return infer_node(
        Node(op, tuple(f"x{i}" for i in range(len(shapes))), ("y",), "layer"),
        [Value(f"x{i}", kind, shape) for i, shape in enumerate(shapes)],
    )[0]


def maps(count: int = 1, shape: tuple[int, int, int] = SHAPE) -> list[NDArray[np.float32]]:
    random = np.random.default_rng(3)
    return [(3 * random.standard_normal((2, *shape))).astype(np.float32) for _ in range(count)]


def to_torch(array: NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array.transpose(0, 3, 1, 2)))


def from_torch(tensor: torch.Tensor) -> NDArray[Any]:
    return tensor.numpy().transpose(0, 2, 3, 1)


def column(array: NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(array).reshape(1, -1, 1, 1)


CASES: dict[str, tuple[ops.Op, Callable[[torch.Tensor], torch.Tensor]]] = {
    "scale": (ops.Scale(PER_CHANNEL), lambda x: x * column(PER_CHANNEL)),
    "scale by one number": (ops.Scale(ONE), lambda x: x * 0.5),
    "shift": (ops.Shift(PER_CHANNEL), lambda x: x + column(PER_CHANNEL)),
    "clamp": (ops.Clamp(-1, 1), F.hardtanh),
    "clamp from below": (ops.Clamp(0.5, np.inf), lambda x: x.clamp(min=0.5)),
    "sigmoid": (ops.Function("sigmoid"), torch.sigmoid),
    "hardsigmoid": (ops.Function("hardsigmoid"), F.hardsigmoid),
    "silu": (ops.Function("silu"), F.silu),
    "hardswish": (ops.Function("hardswish"), F.hardswish),
    "gelu": (ops.Function("gelu"), F.gelu),
    "gelu_tanh": (ops.Function("gelu_tanh"), lambda x: F.gelu(x, approximate="tanh")),
    "tanh": (ops.Function("tanh"), torch.tanh),
    "group norm": (
        ops.GroupNorm(3, PER_CHANNEL, PER_CHANNEL[::-1].copy(), 1e-5),
        lambda x: F.group_norm(x, 3, torch.from_numpy(PER_CHANNEL), torch.from_numpy(PER_CHANNEL[::-1].copy())),
    ),
    "adaptive": (ops.AdaptiveAvgPool2d((3, 2)), lambda x: F.adaptive_avg_pool2d(x, (3, 2))),
    "adaptive, larger than the map": (ops.AdaptiveAvgPool2d((9, 5)), lambda x: F.adaptive_avg_pool2d(x, (9, 5))),
    "shuffle": (
        ops.GatherChannels(np.array([0, 3, 1, 4, 2, 5], np.int32)),
        lambda x: x.reshape(2, 2, 3, 7, 5).transpose(1, 2).reshape(2, 6, 7, 5),
    ),
    "zeros": (
        ops.GatherChannels(np.array([-1, *range(6), -1], np.int32)),
        lambda x: F.pad(x, (0, 0, 0, 0, 1, 1)),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_an_operator_means_what_torch_means(case: str) -> None:
    op, function = CASES[case]
    (x,) = maps()
    np.testing.assert_allclose(evaluate(op, x), from_torch(function(to_torch(x))), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("case", ["scale", "shift", "clamp", "hardsigmoid", "hardswish"])
def test_what_float32_prescribes_is_torch_to_the_last_bit(case: str) -> None:
    op, function = CASES[case]
    (x,) = maps()
    np.testing.assert_array_equal(evaluate(op, x), from_torch(function(to_torch(x))))


def test_products_and_concatenation() -> None:
    x, y = maps(2)
    np.testing.assert_array_equal(evaluate(ops.Multiply(), x, y), x * y)
    gate = x[:, :1, :1]
    np.testing.assert_array_equal(evaluate(ops.Multiply(), y, gate), y * gate)
    np.testing.assert_array_equal(evaluate(ops.Multiply(), gate, y), y * gate)
    np.testing.assert_array_equal(evaluate(ops.Concat(), x, y, x), np.concatenate([x, y, x], axis=3))


@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize(("kernel", "stride", "pad"), [(3, 2, 1), (2, 2, 0), (3, 3, 1), (4, 3, 2)])
def test_ceil_mode_is_an_overhang(kernel: int, stride: int, pad: int, include: bool) -> None:
    for size in (7, 8, 9, 10):
        (x,) = maps(shape=(size, size + 1, 2))
        expected = F.avg_pool2d(to_torch(x), kernel, stride, pad, ceil_mode=True, count_include_pad=include)
        overhang = [
            max((out - 1) * stride + kernel - length - 2 * pad, 0)
            for out, length in zip(expected.shape[2:], (size, size + 1), strict=True)
        ]
        window = ops.Window((kernel, kernel), (stride, stride), (pad, pad, pad + overhang[0], pad + overhang[1]))
        op = ops.AvgPool2d(window, include, (overhang[0], overhang[1]))
        np.testing.assert_allclose(evaluate(op, x), from_torch(expected), rtol=1e-6, atol=1e-6)


def test_concat_keeps_bits_only_among_bits() -> None:
    bits, floats = Value("b", Kind.BITS, SHAPE), Value("f", Kind.FLOAT, SHAPE)
    assert infer_node(Node(ops.Concat(), ("b", "b"), ("y",)), [bits, bits])[0].kind is Kind.BITS
    assert infer_node(Node(ops.Concat(), ("b", "f"), ("y",)), [bits, floats])[0].kind is Kind.FLOAT
    assert infer_one(ops.GatherChannels(np.array([1, 0], np.int32)), SHAPE, kind=Kind.BITS).kind is Kind.BITS
    assert infer_one(ops.GatherChannels(np.array([-1, 0], np.int32)), SHAPE, kind=Kind.BITS).kind is Kind.FLOAT


@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        (ops.Scale(np.ones(5, np.float32)), [SHAPE]),
        (ops.Clamp(1, -1), [SHAPE]),
        (ops.Multiply(), [SHAPE, (7, 5, 1)]),
        (ops.Concat(), [SHAPE, (7, 4, 6)]),
        (ops.Concat(), [SHAPE]),
        (ops.GatherChannels(np.array([6], np.int32)), [SHAPE]),
        (ops.GatherChannels(np.array([-2], np.int32)), [SHAPE]),
        (ops.GroupNorm(4, np.ones(6, np.float32), np.ones(6, np.float32), 1e-5), [SHAPE]),
        (ops.AvgPool2d(ops.Window((2, 2), (2, 2)), True, (1, 0)), [SHAPE]),
        (ops.AdaptiveAvgPool2d((0, 1)), [SHAPE]),
    ],
)
def test_what_does_not_fit_is_refused(op: ops.Op, shapes: list[tuple[int, int, int]]) -> None:
    with pytest.raises(ExportError):
        infer_one(op, *shapes)


def test_steps_become_the_affine_form_where_it_can_say_them() -> None:
    fma, add, prelu = ops.Step("fma", PER_CHANNEL, PER_CHANNEL), ops.Step("add"), ops.Step("prelu", slope=ONE)
    for steps in ((), (fma,), (add,), (fma, add), (fma, add, prelu), (add, ops.Step("relu")), (fma, prelu)):
        epilogue = from_steps(steps, "float+bits")
        assert isinstance(epilogue, ops.Affine)
        assert [step.kind for step in steps_of(epilogue, 1 + (add in steps))] == [step.kind for step in steps]
    for steps in ((add, fma), (prelu, fma), (fma, fma), (add, add), (ops.Step("tanh"),), (ops.Step("multiply"),)):
        assert isinstance(from_steps(steps, "bits"), ops.Steps)


def test_an_epilogue_of_steps_is_its_layers_one_by_one() -> None:
    x, residual, gate = maps(3)
    gate = gate[:, :1, :1]
    steps = (
        ops.Step("fma", PER_CHANNEL, PER_CHANNEL),
        ops.Step("add"),
        ops.Step("prelu", slope=ONE),
        ops.Step("clamp", min=-1, max=4),
        ops.Step("multiply"),
        ops.Step("silu"),
    )
    op = ops.Elementwise(ops.Steps(steps, "float+bits"))
    floats, bits = reference.evaluate_node(Node(op, ("x", "r", "g"), ("y", "b")), [x, residual, gate])
    y = reference.fma(x, PER_CHANNEL, PER_CHANNEL) + residual
    y = np.clip(np.where(y >= 0, y, ONE * y), -1, 4) * gate
    np.testing.assert_array_equal(floats, evaluate(ops.Function("silu"), y))
    np.testing.assert_array_equal(bits, np.where(floats >= 0, 1, -1))
