"""Hold every threshold to torch: the two accumulators at which a bit must turn, put into torch's own program.

Images seldom hit a threshold exactly, above all before a max-pool and in a dense layer. So torch gets the accumulators
themselves: a map whose pixels are all one below the threshold of their channel, and one whose pixels are all on it.
What torch makes of them up to the sign (norm, activation, pooling) must be -1 and +1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx

from bitedge.export.ir import ops
from bitedge.export.ir.graph import Graph, Node
from bitedge.export.lowering.pixels import GRID

if TYPE_CHECKING:
    from bitedge.export.capture.capture import Captured

Integer = ops.BinaryConv2d | ops.ImageConv2d


def threshold_breach(captured: Captured, lowered: Graph) -> str | None:
    """Name the first layer with a threshold that is not torch's; None if there is none.

    Layers whose sums torch rounds (scaled weights) or whose channels were moved are left to the images.
    """
    for node in lowered.nodes:
        if isinstance(node.op, Integer) and isinstance(node.op.epilogue, ops.Threshold):
            breach = _breach(captured, node, node.op, node.op.epilogue.threshold.astype(np.int64))
            if breach:
                return breach
    return None


def _breach(captured: Captured, node: Node, op: Integer, threshold: NDArray[np.int64]) -> str | None:
    sign = node.outputs[0].removesuffix(".unpooled")
    source = _source(captured.graph, sign)
    made = {symbol.value: name for name, symbol in reversed(list(captured.symbols.items()))}
    if source is None or source.outputs[0] not in made or sign not in made or ops.epilogue_of(source.op) is not None:
        return None
    assert isinstance(source.op, ops.BinaryConv2d | ops.Conv2d)
    weight, own = (array.reshape(len(array), -1) for array in (source.op.weight, op.weight))
    if weight.shape != own.shape:
        return None
    same, negated = (weight == own).all(axis=1), (weight == -own).all(axis=1)
    if not (same | negated).all():
        return None
    bound = ops.accumulator_bound(op)
    sums = np.clip(np.stack([threshold - 1, threshold]), -bound, bound)  # a channel may be constant
    expected = np.where(sums >= threshold, 1, -1)
    unit = 1 / GRID if isinstance(op, ops.ImageConv2d) else 1.0
    entering = (np.where(same, sums, -sums) * unit).astype(np.float32)
    found = _torch_bits(captured, made[source.outputs[0]], made[sign], entering)
    if found is None:
        return None
    wrong = (found.reshape(2, -1, len(threshold)) != expected[:, None, :]).any(axis=1)
    if not wrong.any():
        return None
    step, channel = (int(i) for i in np.argwhere(wrong)[0])
    return (
        f"layer {node.layer!r}: its threshold differs from torch in {int(wrong.any(axis=0).sum())} of {len(threshold)} "
        f"channels, first in channel {channel}: at the sum {int(entering[step, channel] / unit)} torch gives "
        f"{-int(expected[step, channel]):+d}"
    )


def _source(graph: Graph, sign: str) -> Node | None:
    """Walk up from a sign to the convolution before it."""
    producers = graph.producers()
    node = producers.get(sign)
    while node is not None and not isinstance(node.op, ops.BinaryConv2d | ops.Conv2d):
        node = producers.get(node.inputs[0])
    return node


def _torch_bits(captured: Captured, start: str, end: str, sums: NDArray[np.float32]) -> NDArray[Any] | None:
    """Run torch's program from one node to another; None if anything else that depends on the image comes in."""
    from bitedge.export.capture.capture import nhwc

    nodes = {node.name: node for node in captured.program.graph.graph.nodes}
    like = nodes[start].meta["val"]
    vectors = torch.from_numpy(sums).reshape(*sums.shape, *[1] * (like.ndim - 2))
    made: dict[fx.Node, Any] = {nodes[start]: vectors.expand(like.shape).contiguous()}
    with torch.no_grad():
        if not _evaluate(nodes[end], made, captured.program.constants):
            return None
    return nhwc(captured.symbols[end], made[nodes[end]])


def _evaluate(node: fx.Node, made: dict[fx.Node, Any], constants: Mapping[str, Tensor]) -> bool:
    """Compute a node and what it needs, from constants and from what is made already; False if that does not do."""
    if node in made:
        return True
    if node.op == "placeholder":
        made[node] = constants.get(node.name)
        return node.name in constants
    if node.op != "call_function" or not all(_evaluate(one, made, constants) for one in node.all_input_nodes):
        return False
    args, options = fx.map_arg((node.args, dict(node.kwargs)), made.__getitem__)
    made[node] = node.target(*args, **options)  # type: ignore[operator]
    return True
