"""Epilogues in C: thresholds, or steps in float."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bitedge.export.errors import ExportError
from bitedge.export.formats.c import text
from bitedge.export.formats.c.code import Code
from bitedge.export.formats.c.weights import thresholds
from bitedge.export.ir import ops
from bitedge.export.ir.epilogue import Step, Threshold, steps_of
from bitedge.export.ir.graph import Kind, Node

PLAIN = ("relu", "clamp", "hardsigmoid", "hardswish", "sigmoid", "tanh", "silu")
"""Steps that read nothing but y."""


def write_epilogue(code: Code, index: int, node: Node) -> str:
    """Write the constants of a node's epilogue, and give the `bitedge_epilogue`."""
    epilogue = ops.epilogue_of(node.op)
    assert epilogue is not None
    integer = isinstance(node.op, ops.BinaryConv2d | ops.ImageConv2d)
    if isinstance(epilogue, Threshold):
        assert isinstance(node.op, ops.BinaryConv2d | ops.ImageConv2d)
        content = thresholds(node.op, epilogue.threshold)
        name = code.array(f"threshold_{index}", content)
        stored = f"{name}, 0" if content.dtype == np.int16 else f"0, {name}"
        return f"{{{code.function('finish_threshold')}, {stored}, 0, 0}}"
    lines, reads = [], 0
    for number, step in enumerate(steps_of(epilogue, len(node.inputs))):
        lines.append(_step(code, f"{index}_{number}", node, step, reads))
        reads += step.reads
    if lines:
        body = "".join(f"    {line},\n" for line in lines)
        code.constants.append(f"static const bitedge_step steps_{index}[{len(lines)}] = {{\n{body}}};\n")
    finish = code.function("finish_integers" if integer else "finish_floats")
    return f"{{{finish}, 0, 0, {f'steps_{index}' if lines else 0}, {len(lines)}}}"


def _step(code: Code, suffix: str, node: Node, step: Step, reads: int) -> str:
    function = _function(code, node, step, reads)
    tensors: dict[str, NDArray[np.float32] | None] = {"scale": step.scale, "bias": step.bias, "slope": step.slope}
    arrays = [
        code.array(f"{name}_{suffix}", each.astype(np.float32)) for name, each in tensors.items() if each is not None
    ]
    arrays += ["0"] * (2 - len(arrays))
    limits = (text.number(step.min), text.number(step.max))
    return "{" + ", ".join(map(str, (code.function(function), *arrays, reads, *limits))) + "}"


def _function(code: Code, node: Node, step: Step, reads: int) -> str:
    """Give the C function of a step; `reads` inputs were taken before."""
    if step.kind == "prelu":
        assert step.slope is not None
        return "step_prelu_one" if step.slope.size == 1 else "step_prelu"
    if step.reads:
        other = code.values[node.inputs[1 + reads]]
        if step.kind == "multiply":
            whole = other.shape == code.values[node.outputs[0]].shape
            return "step_multiply" if whole else "step_multiply_channels"
        return "step_add_bits" if other.kind is Kind.BITS else "step_add"
    if step.kind != "fma" and step.kind not in PLAIN:
        raise ExportError(f"layer {node.layer!r}: the format 'c' has no activation {step.kind}")
    return f"step_{step.kind}"
