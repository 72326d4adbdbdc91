"""Shape and kind of every value, inferred node by node; a graph that does not fit together is refused here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from bitedge.export.errors import ExportError
from bitedge.export.ir import limits, ops
from bitedge.export.ir.epilogue import steps_of
from bitedge.export.ir.graph import Graph, Kind, Node, Shape, Value

Typed = tuple[Kind, Shape]


def infer(graph: Graph) -> dict[str, Value]:
    """Give every value of the graph by name, in the order in which they are made."""
    values = {graph.input.name: graph.input}
    for node in graph.nodes:
        for value in infer_node(node, [values[name] for name in node.inputs]):
            values[value.name] = value
    return values


def infer_node(node: Node, inputs: Sequence[Value]) -> list[Value]:
    """Give the values that one node makes."""
    rule = RULES.get(type(node.op))
    if rule is None:
        raise ExportError(f"{node.layer}: the graph has no operator {type(node.op).__name__}")
    typed = rule(node, inputs)
    if len(typed) != len(node.outputs):
        raise ExportError(f"{node.layer}: {node.op.name} makes {len(typed)} values, {len(node.outputs)} were named")
    for _, shape in typed:
        if shape[0] * shape[1] * shape[2] > limits.VALUE_ELEMENTS:
            most = f"a value holds at most {limits.VALUE_ELEMENTS} elements"
            raise ExportError(f"{node.layer}: {node.op.name} would give the shape {shape}, {most}")
        if min(shape) < 1:
            raise ExportError(f"{node.layer}: {node.op.name} would give the shape {shape}; is the input too small?")
    return [Value(name, kind, shape) for name, (kind, shape) in zip(node.outputs, typed, strict=True)]


def _windowed(node: Node, window: ops.Window, shape: Shape, channels: int) -> Shape:
    numbers = (*window.kernel, *window.stride, *window.pads, *window.dilation)
    if (
        max(numbers) > limits.WINDOW
        or min(window.pads) < 0
        or min(*window.kernel, *window.stride, *window.dilation) < 1
    ):
        raise ExportError(f"{node.layer}: {node.op.name} has a window outside the limits: {window}")
    return (*window.output_size(shape[0], shape[1]), channels)


_CONVOLUTION_KINDS: Mapping[type[ops.Op], tuple[tuple[Kind, ...], Kind]] = {
    ops.Conv2d: ((Kind.FLOAT, Kind.INT, Kind.BITS), Kind.FLOAT),
    ops.BinaryConv2d: ((Kind.BITS,), Kind.INT),
    ops.ImageConv2d: ((Kind.UINT8,), Kind.INT),
}


def _convolution(node: Node, inputs: Sequence[Value]) -> list[Typed]:
    op = node.op
    assert isinstance(op, ops.Conv2d | ops.BinaryConv2d | ops.ImageConv2d)
    kinds, exact = _CONVOLUTION_KINDS[type(op)]
    _want(node, inputs[0], *kinds)
    out_channels, *kernel, depth = op.weight.shape
    groups = op.window.groups
    if tuple(kernel) != op.window.kernel or depth * groups != inputs[0].shape[2] or out_channels % groups:
        fit = f"weight {op.weight.shape} and {groups} groups do not fit an input of {inputs[0].shape[2]} channels"
        raise ExportError(f"{node.layer}: {fit}")
    if kernel[0] * kernel[1] * depth > limits.TAPS:
        raise ExportError(f"{node.layer}: more than {limits.TAPS} taps per output")
    shape = _windowed(node, op.window, inputs[0].shape, out_channels)
    if op.epilogue is None:
        return [(exact, shape)]
    return _epilogue(node, op.epilogue, shape, inputs[1:])


def _epilogue(node: Node, epilogue: ops.Epilogue, shape: Shape, others: Sequence[Value]) -> list[Typed]:
    if isinstance(epilogue, ops.Threshold):
        if others:
            raise ExportError(f"{node.layer}: a threshold takes no residual")
        return [(Kind.BITS, shape)]
    steps = steps_of(epilogue, len(node.inputs))
    readers = [step for step in steps if step.reads]
    if len(readers) != len(others):
        raise ExportError(f"{node.layer}: {len(readers)} steps take an input, the node has {len(others)} for them")
    for step, value in zip(readers, others, strict=True):
        if value.shape != shape and not (step.kind == "multiply" and value.shape == (1, 1, shape[2])):
            raise ExportError(f"{node.layer}: cannot {step.kind} {value.name} of shape {value.shape} to shape {shape}")
    for step in steps:
        for parameter in (step.scale, step.bias, step.slope):
            if parameter is not None:
                _per_channel(node, parameter.size, shape[2])
    outputs: list[Typed] = []
    if epilogue.emit != "bits":
        outputs.append((Kind.FLOAT, shape))
    if epilogue.emit != "float":
        outputs.append((Kind.BITS, shape))
    return outputs


def _elementwise(node: Node, inputs: Sequence[Value]) -> list[Typed]:
    assert isinstance(node.op, ops.Elementwise)
    return _epilogue(node, node.op.epilogue, inputs[0].shape, inputs[1:])


def _normalize(node: Node, inputs: Sequence[Value]) -> list[Typed]:
    _want(node, inputs[0], Kind.UINT8)
    return [(Kind.FLOAT, inputs[0].shape)]


def _float_like(_node: Node, inputs: Sequence[Value]) -> list[Typed]:
    return [(Kind.FLOAT, inputs[0].shape)]


def _sign(_node: Node, inputs: Sequence[Value]) -> list[Typed]:
    return [(Kind.BITS, inputs[0].shape)]


def _add(node: Node, inputs: Sequence[Value]) -> list[Typed]:
    if inputs[0].shape != inputs[1].shape:
        raise ExportError(f"{node.layer}: cannot add the shapes {inputs[0].shape} and {inputs[1].shape}")
    return [(Kind.FLOAT, inputs[0].shape)]


def _per_channel(node: Node, size: int, channels: int) -> None:
    if size not in (1, channels):
        raise ExportError(f"{node.layer}: {node.op.name} has {size} numbers for {channels} channels")


def _with_parameters(node: Node, inputs: Sequence[Value]) -> list[Typed]:
    """Elementwise, with one number per channel or one for all."""
    op = node.op
    assert isinstance(op, ops.Scale | ops.Shift | ops.Prelu)
    parameter = {ops.Scale: "scale", ops.Shift: "bias", ops.Prelu: "slope"}[type(op)]
    _per_channel(node, getattr(op, parameter).size, inputs[0].shape[2])
    return _float_like(node, inputs)


def _clamp(node: Node, inputs: Sequence[Value]) -> list[Typed]:
    assert isinstance(node.op, ops.Clamp)
    if not node.op.min <= node.op.max:
        raise ExportError(f"{node.layer}: clamp needs min <= max, got {node.op.min:g} and {node.op.max:g}")
    return _float_like(node, inputs)


def _multiply(node: Node, inputs: Sequence[Value]) -> list[Typed]:
    """A map times a map, or a map times a vector, in either order."""
    first, second = (value.shape for value in inputs)
    if first == second or second == (1, 1, first[2]):
        return [(Kind.FLOAT, first)]
    if first == (1, 1, second[2]):
        return [(Kind.FLOAT, second)]
    raise ExportError(f"{node.layer}: cannot multiply the shapes {first} and {second}")


def _concat(node: Node, inputs: Sequence[Value]) -> list[Typed]:
    if len(inputs) < 2 or len({value.shape[:2] for value in inputs}) > 1:
        raise ExportError(f"{node.layer}: concat needs two maps or more of one size, got {[v.shape for v in inputs]}")
    kinds = {value.kind for value in inputs}
    height, width, _ = inputs[0].shape
    kind = kinds.pop() if len(kinds) == 1 else Kind.FLOAT
    return [(kind, (height, width, sum(value.shape[2] for value in inputs)))]


def _gather(node: Node, inputs: Sequence[Value]) -> list[Typed]:
    assert isinstance(node.op, ops.GatherChannels)
    index, (height, width, channels) = node.op.index, inputs[0].shape
    if index.min(initial=0) < -1 or index.max(initial=-1) >= channels:
        raise ExportError(f"{node.layer}: an index lies outside -1 to {channels - 1}")
    bits = inputs[0].kind is Kind.BITS and bool((index < 0).any())
    return [(Kind.FLOAT if bits else inputs[0].kind, (height, width, len(index)))]


def _group_norm(node: Node, inputs: Sequence[Value]) -> list[Typed]:
    assert isinstance(node.op, ops.GroupNorm)
    channels = inputs[0].shape[2]
    if node.op.groups < 1 or channels % node.op.groups or {len(node.op.weight), len(node.op.bias)} != {channels}:
        raise ExportError(f"{node.layer}: {node.op.groups} groups do not fit {channels} channels")
    return _float_like(node, inputs)


def _adaptive_avg_pool(node: Node, inputs: Sequence[Value]) -> list[Typed]:
    assert isinstance(node.op, ops.AdaptiveAvgPool2d)
    if max(node.op.size) > limits.WINDOW:
        raise ExportError(f"{node.layer}: a pooled size of {node.op.size} is beyond the limit of {limits.WINDOW}")
    return [(Kind.FLOAT, (*node.op.size, inputs[0].shape[2]))]


def _pad(node: Node, inputs: Sequence[Value]) -> list[Typed]:
    assert isinstance(node.op, ops.Pad)
    height, width, channels = inputs[0].shape
    top, left, bottom, right = node.op.pads
    kind = inputs[0].kind if inputs[0].kind is not Kind.BITS or node.op.keeps_bits else Kind.FLOAT
    return [(kind, (height + top + bottom, width + left + right, channels))]


def _flatten(_node: Node, inputs: Sequence[Value]) -> list[Typed]:
    height, width, channels = inputs[0].shape
    return [(inputs[0].kind, (1, 1, height * width * channels))]


def _max_pool(node: Node, inputs: Sequence[Value]) -> list[Typed]:
    assert isinstance(node.op, ops.MaxPool2d)
    _check_pool(node, node.op.window, inputs[0].shape)
    return [(inputs[0].kind, _windowed(node, node.op.window, inputs[0].shape, inputs[0].shape[2]))]


def _avg_pool(node: Node, inputs: Sequence[Value]) -> list[Typed]:
    assert isinstance(node.op, ops.AvgPool2d)
    _check_pool(node, node.op.window, inputs[0].shape)
    if not all(0 <= over <= pad for over, pad in zip(node.op.overhang, node.op.window.pads[2:], strict=True)):
        raise ExportError(f"{node.layer}: an overhang of {node.op.overhang} is more than the padding")
    return [(Kind.FLOAT, _windowed(node, node.op.window, inputs[0].shape, inputs[0].shape[2]))]


def _check_pool(node: Node, window: ops.Window, shape: Shape) -> None:
    """Every window must hold at least one real pixel: otherwise there is nothing to pool."""
    for axis in (0, 1):
        before, size = window.pads[axis], shape[axis]
        for start in range(window.output_size(shape[0], shape[1])[axis]):
            first = start * window.stride[axis] - before
            taps = range(first, first + window.dilation[axis] * window.kernel[axis], window.dilation[axis])
            if not any(0 <= tap < size for tap in taps):
                raise ExportError(f"{node.layer}: a window of {node.op.name} lies wholly in the padding")


def _want(node: Node, value: Value, *kinds: Kind) -> None:
    if value.kind not in kinds:
        raise ExportError(f"{node.layer}: {node.op.name} takes {'/'.join(kinds)}, {value.name!r} is {value.kind}")


RULES: Mapping[type[ops.Op], Callable[[Node, Sequence[Value]], list[Typed]]] = {
    ops.Normalize: _normalize,
    ops.Pad: _pad,
    ops.Sign: _sign,
    ops.Conv2d: _convolution,
    ops.BinaryConv2d: _convolution,
    ops.ImageConv2d: _convolution,
    ops.BatchNorm: _float_like,
    ops.LayerNorm: _float_like,
    ops.GroupNorm: _group_norm,
    ops.Relu: _float_like,
    ops.Prelu: _with_parameters,
    ops.Scale: _with_parameters,
    ops.Shift: _with_parameters,
    ops.Clamp: _clamp,
    ops.Function: _float_like,
    ops.Add: _add,
    ops.Multiply: _multiply,
    ops.Concat: _concat,
    ops.GatherChannels: _gather,
    ops.Flatten: _flatten,
    ops.MaxPool2d: _max_pool,
    ops.AvgPool2d: _avg_pool,
    ops.AdaptiveAvgPool2d: _adaptive_avg_pool,
    ops.Softmax: _float_like,
    ops.Elementwise: _elementwise,
}
