"""Which values of a lowered graph every engine must give to the last bit."""

from __future__ import annotations

from bitedge.export.ir import ops
from bitedge.export.ir.graph import Graph
from bitedge.export.lowering.pixels import on_grid

_ROUNDING = (ops.Conv2d, ops.AvgPool2d, ops.AdaptiveAvgPool2d, ops.LayerNorm, ops.GroupNorm, ops.Softmax)
_APPROXIMATE = {"sigmoid", "tanh", "silu", "gelu", "gelu_tanh"}


def exact_values(graph: Graph) -> set[str]:
    """Give the values that only integers, and floats rounded in a prescribed way, lead to.

    A float convolution, a mean or a norm may sum in any order, and exponentials are approximated, so what follows them
    is not among them.
    """
    exact = {graph.input.name}
    for node in graph.nodes:
        if isinstance(node.op, _ROUNDING) or (isinstance(node.op, ops.Normalize) and not on_grid(node.op)):
            continue
        epilogue = ops.epilogue_of(node.op)
        if isinstance(node.op, ops.Function) and node.op.kind in _APPROXIMATE:
            continue
        if isinstance(epilogue, ops.Steps) and any(step.kind in _APPROXIMATE for step in epilogue.steps):
            continue
        if exact.issuperset(node.inputs):
            exact.update(node.outputs)
    return exact
