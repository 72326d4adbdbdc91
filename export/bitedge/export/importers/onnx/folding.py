"""What depends on constants alone, computed by ONNX's own reference evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto
from onnx.reference import ReferenceEvaluator

from bitedge.export.errors import ExportError

_LARGEST = 2**28
_CONTROL = ("If", "Loop", "Scan")


def fold(node: NodeProto, inputs: Sequence[NDArray[Any] | None], opset: int) -> dict[str, NDArray[Any]]:
    """Compute a node whose inputs are all constant."""
    name = node.name or node.op_type
    if node.domain not in ("", "ai.onnx") or node.op_type in _CONTROL or node.op_type.startswith("Random"):
        raise ExportError(f"layer {name!r}: the operator {node.op_type} is not supported on constants")
    _check_size(name, node, inputs)
    try:
        given = {each: array for each, array in zip(node.input, inputs, strict=True) if each}
        with np.errstate(all="ignore"):
            found = ReferenceEvaluator(node, opsets={"": opset}).run(None, given)
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ExportError(f"layer {name!r} ({node.op_type}) cannot be computed: {lines[0][:200]}") from error
    return {each: np.asarray(array) for each, array in zip(node.output, found, strict=True)}


def _check_size(name: str, node: NodeProto, inputs: Sequence[NDArray[Any] | None]) -> None:
    """Refuse operators whose result is absurdly large before they are computed."""
    known = [array for array in inputs if array is not None]
    size = sum(array.size for array in known)
    integers = [array for array in known if array.dtype.kind in "iu" and 0 < array.size <= 16]
    if node.op_type in ("ConstantOfShape", "Expand", "Tile", "Pad", "OneHot"):
        size = max(size, *(int(np.prod(np.abs(array.astype(object)))) for array in integers), 1)
        size *= (
            max((array.size for array in known if array.dtype.kind == "f"), default=1) if node.op_type == "Tile" else 1
        )
        size = max(size, max((int(abs(int(n))) for a in integers for n in a.flat), default=0))
    if node.op_type == "Range" and len(known) == 3 and float(known[2]) != 0:
        size = int(abs((float(known[1]) - float(known[0])) / float(known[2])))
    if node.op_type in ("MatMul", "Gemm", "Conv", "Einsum", "Resize", "Upsample"):
        size = int(np.prod([max(array.size, 1) for array in known[:2]], dtype=object)) // 2**8
    if size > _LARGEST:
        raise ExportError(
            f"layer {name!r} ({node.op_type}) would make a constant of {size} numbers, too large to be real"
        )
