"""One row per node of the lowered graph: what it is, binary or float and why, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bitedge.export.formats.gguf.writer import node_tensors
from bitedge.export.ir import ops
from bitedge.export.ir.epilogue import steps_of
from bitedge.export.ir.graph import Graph, Kind, Node, Shape, Value
from bitedge.export.ir.shapes import infer
from bitedge.export.lowering.pixels import on_grid


@dataclass(frozen=True)
class LayerRow:
    """One node of the lowered graph."""

    layer: str
    absorbed: tuple[str, ...]
    operator: str
    epilogue: str
    shape: Shape
    precision: str
    why: str
    trained_binary: bool
    parameters: int
    bytes_before: int
    bytes_after: int
    macs: int


def layer_rows(captured: Graph, lowered: Graph) -> list[LayerRow]:
    """Describe every node of the lowered graph; parameters are counted where torch had them."""
    owned: dict[str, int] = {}
    for node in captured.nodes:
        owned[node.layer] = owned.get(node.layer, 0) + parameters(node.op)
    values, producers = infer(lowered), lowered.producers()
    rows = []
    for node in lowered.nodes:
        count = sum(owned.pop(layer, 0) for layer in (node.layer, *node.absorbed))
        source = producers.get(node.inputs[0])
        precision, why = _precision(node, None if source is None else source.op, values)
        rows.append(
            LayerRow(
                layer=node.layer,
                absorbed=node.absorbed,
                operator=node.op.name,
                epilogue=_epilogue(node),
                shape=values[node.outputs[0]].shape,
                precision=precision,
                why=why,
                trained_binary=trained_binary(node.op),
                parameters=count,
                bytes_before=4 * count,
                bytes_after=sum(tensor.nbytes for tensor in node_tensors(node.op).values()),
                macs=macs(node, values),
            )
        )
    return rows


def parameters(op: ops.Op) -> int:
    """Count the numbers that a layer of the captured graph holds, running statistics included."""
    if isinstance(op, ops.Conv2d | ops.BinaryConv2d):
        bias = op.epilogue.bias if isinstance(op.epilogue, ops.Affine) else None
        return op.weight.size + (0 if bias is None else bias.size)
    if isinstance(op, ops.BatchNorm):
        return 4 * op.mean.size
    if isinstance(op, ops.LayerNorm | ops.GroupNorm):
        return 2 * op.weight.size
    if isinstance(op, ops.Scale):
        return op.scale.size
    if isinstance(op, ops.Shift):
        return op.bias.size
    return op.slope.size if isinstance(op, ops.Prelu) else 0


def macs(node: Node, values: dict[str, Value]) -> int:
    """Count the multiply-accumulates of one image."""
    if not isinstance(node.op, ops.Conv2d | ops.BinaryConv2d | ops.ImageConv2d):
        return 0
    height, width, _ = values[node.outputs[0]].shape
    return height * width * int(np.prod(node.op.weight.shape))


def trained_binary(op: ops.Op) -> bool:
    """Tell whether a node's weights were trained as ±1."""
    return isinstance(op, ops.BinaryConv2d | ops.ImageConv2d) or (isinstance(op, ops.Conv2d) and op.binary)


def _epilogue(node: Node) -> str:
    epilogue = ops.epilogue_of(node.op)
    if epilogue is None:
        return "-"
    if isinstance(epilogue, ops.Threshold):
        return "threshold"
    names = {"fma": "scale", "add": "residual"}
    steps = [names.get(step.kind, step.kind) for step in steps_of(epilogue, len(node.inputs))]
    steps.append({"float": "", "bits": "sign", "float+bits": "float and sign"}[epilogue.emit])
    return ", ".join(step for step in steps if step) or "-"


def _precision(node: Node, source: ops.Op | None, values: dict[str, Value]) -> tuple[str, str]:
    op, entering = node.op, values[node.inputs[0]].kind
    if isinstance(op, ops.BinaryConv2d):
        return "binary", "±1 weights, ±1 input"
    if isinstance(op, ops.ImageConv2d):
        return "binary", "±1 weights, 8-bit pixels on the grid (2u - 255)/256"
    if isinstance(op, ops.Conv2d):
        return "float", _why_float(op, source)
    if isinstance(op, ops.MaxPool2d) and entering is Kind.BITS:
        return "binary", "pools bits"
    reasons: dict[type[ops.Op], str] = {
        ops.LayerNorm: "its statistics differ from pixel to pixel, so no threshold exists",
        ops.Normalize: "pixels enter a float layer",
        ops.Elementwise: _why_alone(source),
    }
    return "float", reasons.get(type(op), "works on floats")


def _why_alone(source: ops.Op | None) -> str:
    if source is None or ops.epilogue_of(source) is None:
        return f"{'the input' if source is None else source.name} before it has no epilogue to join"
    return "the value before it has other readers, or its steps come in another order"


def _why_float(op: ops.Conv2d, source: ops.Op | None) -> str:
    if not op.binary:
        return "float weights"
    if source is not None and on_grid(source):
        return "±1 weights, but more taps than an exact sum of pixels allows"
    if isinstance(source, ops.Normalize):
        return "±1 weights, but the pixels are not on the grid (2u - 255)/256"
    return "±1 weights, but its input is not binarized (input_quantizer=None)"
