"""Ways of writing a sign: straight-through forms, and every elementwise function of the sign of a number.

A step is a function of the sign of one tensor: `torch.sign(x)`, `x >= 0`, `2 * (x > 0).float() - 1`,
`torch.where(x >= 0, 1, -1)`, or a sign whose zeros are overwritten. All there is to know of it are its values where x
is negative, zero and positive, so torch itself computes them, on three numbers.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from bitedge.export.capture.builder import Builder, Symbol, View
from bitedge.export.ir import ops
from bitedge.export.ir.graph import Kind
from bitedge.train.nn.quantize import sign as _registers_bitedge_sign  # noqa: F401

aten = torch.ops.aten

SAME = {
    aten.detach.default,
    aten.clone.default,
    aten.alias.default,
    aten.lift_fresh_copy.default,
    aten._to_copy.default,
}
_SIGNS = {aten.sign.default, torch.ops.bitedge.sign.default}
_COMPARISONS = {
    getattr(getattr(aten, name), kind) for name in ("ge", "gt", "le", "lt", "eq", "ne") for kind in ("Scalar", "Tensor")
}
STARTS = _SIGNS | _COMPARISONS
POINTWISE = {
    *STARTS,
    aten.add.Tensor,
    aten.sub.Tensor,
    aten.rsub.Scalar,
    aten.mul.Tensor,
    aten.div.Tensor,
    aten.neg.default,
    aten.abs.default,
    aten.where.self,
    aten.where.Scalar,
    aten.where.ScalarSelf,
    aten.where.ScalarOther,
    aten.masked_fill.Scalar,
    aten.masked_fill.Tensor,
    aten.logical_not.default,
    aten.bitwise_not.default,
    aten.clamp.default,
    aten.hardtanh.default,
    aten._to_copy.default,
}


@dataclass(frozen=True, eq=False)
class Step:
    """A function of the sign of `source`: `levels` are its values where that is negative, zero and positive."""

    source: Symbol | View
    levels: Tensor


def step(target: Any, *args: Any, **options: Any) -> Step | None:
    """Apply an elementwise operator to steps of one source and to single numbers; None if that is not what it has."""
    if target is aten.index_put.default:
        values, masks, filling = args[:3]
        if len(masks) != 1 or not isinstance(masks[0], Step):
            return None
        target, args, options = aten.where.self, (masks[0], filling, values), {}
    steps = [arg for arg in args if isinstance(arg, Step)]
    if target not in POINTWISE or not steps or any(other.source is not steps[0].source for other in steps):
        return None
    numbers = [_number(arg) for arg in args]
    if any(number is None and arg is not None for number, arg in zip(numbers, args, strict=True)):
        return None
    return Step(steps[0].source, target(*numbers, **options))


def _number(arg: Any) -> Any:
    """Give levels for a step, a single number for a constant that is the same everywhere, None for anything else."""
    if isinstance(arg, Step):
        return arg.levels
    if isinstance(arg, Tensor):
        first = arg.flatten()[:1]
        return first.reshape(()) if bool((arg == first).all()) else None
    return arg if isinstance(arg, int | float | bool | str) else None


def start(target: Any, x: Symbol | View, compare: Any = None) -> Step:
    """Make the step of a sign, or of a comparison with 0, of the value itself."""
    numbers = torch.tensor([-1.0, 0.0, 1.0])
    if target is torch.ops.bitedge.sign.default:
        return Step(x, torch.tensor([-1.0, 1.0, 1.0]))
    return Step(x, target(numbers) if compare is None else target(numbers, compare))


def settle_step(b: Builder, x: Step) -> Symbol | View:
    """Make a step into bits: one `sign` node, and what makes its values of ±1, if they are others.

    A step that is negative at 0 is the sign of -x, negated, so that it is exact too. Only where 0 has a value of its
    own (torch.sign) there is no exact form; the node is marked.
    """
    source = b.pointwise_source(x.source)
    low, middle, high = (float(level) for level in x.levels)
    padded = source.kind is Kind.BITS and middle != (low + high) / 2 and b.padded_with_zero(source)
    if padded:
        source = b.plain(source)
    if source.kind is Kind.BITS and not padded:
        low, middle, high = (high, middle, low) if source.factor < 0 else (low, middle, high)
        bits = source.scaled(1.0)
    elif middle == high:
        bits = b.sign(source)
    elif middle == low:
        bits = b.sign(b.emit(ops.Scale(b.one(-1.0)), source, inner="negated", order=source.order))
        low, high = high, low
    elif middle == 0 and low == -high:
        bits = b.sign(source, at_zero=0)
    else:
        raise b.refuse(f"a sign that gives {low:g}, {middle:g} and {high:g} below, at and above 0 is not supported")
    if low == -high:
        return b.reviewed(x.source, bits.scaled(high))
    half = (high - low) / 2
    scaled = b.emit(ops.Scale(b.one(half)), bits, inner="scaled", order=bits.order)
    return b.reviewed(x.source, b.emit(ops.Shift(b.one(high - half)), scaled, order=bits.order))


def drop_straight_through(graph: fx.Graph, constants: Collection[str]) -> None:
    """Replace `a - b + b`, where `a` is a step, by `a`: a surrogate gradient b, which the forward pass does not need.

    torch.export drops `detach`, so the form is found by its structure. Only for a step: an honest user's a - b + b
    keeps its rounding.
    """
    fixed = _constant_nodes(graph, constants)
    for node in list(graph.nodes):
        kept = _straight_through(node, fixed)
        if kept is not None:
            node.replace_all_uses_with(kept)
    graph.eliminate_dead_code()


def _constant_nodes(graph: fx.Graph, constants: Collection[str]) -> set[fx.Node]:
    fixed: set[fx.Node] = set()
    for node in graph.nodes:
        known = node.name in constants if node.op == "placeholder" else all(n in fixed for n in node.all_input_nodes)
        if known and node.op != "output":
            fixed.add(node)
    return fixed


def _strip(node: Any) -> Any:
    while isinstance(node, fx.Node) and node.target in SAME:
        node = node.args[0]
    return node


def _straight_through(node: fx.Node, fixed: set[fx.Node]) -> fx.Node | None:
    if node.target not in (aten.add.Tensor, aten.sub.Tensor) or node.kwargs:
        return None
    first, second = (_strip(arg) for arg in node.args)
    candidates: list[tuple[Any, Any]] = []  # what is kept, if the two of the pair are one
    if node.target is aten.add.Tensor:
        for one, other in ((first, second), (second, first)):
            if _is(one, aten.sub.Tensor):
                a, b = (_strip(arg) for arg in one.args)
                candidates += [(a, (b, other)), (other, (a, b))]
    elif _is(first, aten.add.Tensor):
        a, b = (_strip(arg) for arg in first.args)
        candidates += [(a, (b, second)), (b, (a, second))]
    for kept, (one, other) in candidates:
        if one is other and isinstance(one, fx.Node) and isinstance(kept, fx.Node) and is_step(kept, fixed):
            return kept
    return None


def _is(node: Any, target: Any) -> bool:
    return isinstance(node, fx.Node) and node.target is target and not node.kwargs


def is_step(node: Any, fixed: Collection[fx.Node]) -> bool:
    """Tell whether a node is made of signs, comparisons and constants only."""
    node = _strip(node)
    if not isinstance(node, fx.Node):
        return False
    if node.target in STARTS:
        return True
    if node.target not in POINTWISE and node.target is not aten.index_put.default:
        return False
    inputs = node.all_input_nodes
    return any(is_step(one, fixed) for one in inputs) and all(one in fixed or is_step(one, fixed) for one in inputs)
