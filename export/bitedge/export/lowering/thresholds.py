"""What lies between an integer layer and a sign becomes one threshold per channel; a max-pool moves onto the bits.

BatchNorm, shift, scale, clamp and activation functions are folded alike: every value that the accumulator can take goes
through torch's own arithmetic, so the thresholds are exact by construction. The bit of a channel is then a step in the
accumulator: rising, falling (the channel's weights are negated, so that it rises), or constant (the threshold lies
outside the range). It is on the accumulator, so it serves border pixels as well. A sign that torch computes by a strict
comparison is folded as such.

A max-pool in the chain commutes with what follows it: if the bit rises with the pooled value, the largest value has the
largest bit; if it falls, the smallest, so that channel pools with the minimum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitedge.export.ir import ops
from bitedge.export.ir.graph import Graph, Node, prune, splice
from bitedge.export.lowering.arithmetic import POINTWISE, evaluate

_CHUNK = 2**22  # accumulator values per evaluation: bounds memory


@dataclass(frozen=True, eq=False)
class _Chain:
    """conv → before → pool? → after → sign, where every value in between has one reader."""

    conv: Node
    before: tuple[Node, ...]
    pool: Node | None  # a max-pool
    after: tuple[Node, ...]
    sign: Node

    def inner(self) -> tuple[Node, ...]:
        return (self.conv, *self.before, *((self.pool,) if self.pool else ()), *self.after)

    def layers(self) -> tuple[str, ...]:
        return tuple(node.layer for node in (*self.before, *self.after) if node.layer != self.conv.layer)


def find_thresholds(graph: Graph) -> Graph:
    """Replace every chain from an integer layer to a sign by thresholds, where the bit is a step."""
    changes: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        chain = _chain(graph, node) if isinstance(node.op, ops.Sign) else None
        fused = None if chain is None else _fuse(chain)
        if chain is not None and fused is not None:
            changes.update({inner: [] for inner in chain.inner()})
            changes[chain.sign] = fused
    return prune(splice(graph, changes))


def _chain(graph: Graph, sign: Node) -> _Chain | None:
    """Walk up from a sign to an integer convolution."""
    producers, consumers = graph.producers(), graph.consumers()
    groups: list[list[Node]] = [[]]  # after the pool, then before it
    pool: Node | None = None
    name = sign.inputs[0]
    while True:
        node = producers.get(name)
        if node is None or len(consumers[name]) != 1 or name == graph.output:
            return None
        if isinstance(node.op, ops.BinaryConv2d | ops.ImageConv2d) and node.op.epilogue is None:
            after, before = groups[0], groups[1] if pool else []
            if pool is None:
                after, before = [], groups[0]
            return _Chain(node, tuple(reversed(before)), pool, tuple(reversed(after)), sign)
        if isinstance(node.op, ops.MaxPool2d) and pool is None:
            pool = node
            groups.append([])
        elif _is_pointwise(node):
            groups[-1].append(node)
        else:
            return None
        name = node.inputs[0]


def _is_pointwise(node: Node) -> bool:
    if isinstance(node.op, ops.Elementwise):
        return len(node.inputs) == 1 and node.op.epilogue.emit == "float"
    return isinstance(node.op, POINTWISE)


def _apply(nodes: tuple[Node, ...], x: NDArray[Any]) -> NDArray[Any]:
    for node in nodes:
        x = evaluate(node, x)
    return x


def _fuse(chain: _Chain) -> list[Node] | None:
    conv = chain.conv.op
    assert isinstance(conv, ops.BinaryConv2d | ops.ImageConv2d)
    bound, channels = ops.accumulator_bound(conv), len(conv.weight)
    pooled, bits = _enumerate(chain, bound, channels)
    rising, falling = _directions(bits)
    if not (rising | falling).all():
        return None
    sign_flip = falling & ~rising
    # `count` accumulators give +1. When the bit rises these are the largest, from bound + 1 - count on. When it falls,
    # the smallest, up to v = count - 1 - bound; with negated weights that is +1 iff -acc >= -v: the same number.
    count = bits.sum(axis=0)
    threshold = np.where(count == len(bits), -bound - 1, bound + 1 - count).astype(np.int32)
    weight = np.where(sign_flip[:, None, None, None], -conv.weight, conv.weight)
    fused = replace(conv, weight=weight, epilogue=ops.Threshold(threshold))
    if chain.pool is None:
        return [replace(chain.conv, op=fused, outputs=chain.sign.outputs, absorbed=chain.layers())]
    upward, downward = _directions(pooled)
    if not (upward | downward).all():
        return None
    minimum = (count > 0) & (count < len(bits)) & (upward == sign_flip)
    inner = f"{chain.sign.outputs[0]}.unpooled"
    assert isinstance(chain.pool.op, ops.MaxPool2d)
    pool = replace(chain.pool.op, min_channels=minimum if minimum.any() else None)
    return [
        replace(chain.conv, op=fused, outputs=(inner,), absorbed=chain.layers()),
        Node(pool, (inner,), chain.sign.outputs, chain.pool.layer),
    ]


def _enumerate(chain: _Chain, bound: int, channels: int) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Give, for every accumulator from -bound to bound, the value that would be pooled and the bit."""
    bits, pooled = [], []
    strict = isinstance(chain.sign.op, ops.Sign) and chain.sign.op.at_zero < 0
    step = max(_CHUNK // channels, 1)
    for start in range(-bound, bound + 1, step):
        acc = np.arange(start, min(start + step, bound + 1), dtype=np.int32)
        x = _apply(chain.before, np.repeat(acc[:, None], channels, axis=1))
        y = _apply(chain.after, x)
        bits.append(y > 0 if strict else y >= 0)
        pooled.append(x.astype(np.float32) if chain.pool is not None else x[:0])
    return np.concatenate(pooled), np.concatenate(bits)


def _directions(values: NDArray[Any]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Tell for each channel whether it never falls, and whether it never rises, along the first axis."""
    return (values[1:] >= values[:-1]).all(axis=0), (values[1:] <= values[:-1]).all(axis=0)
