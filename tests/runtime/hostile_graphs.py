"""Files whose container is sound but whose graph is not: each makes one change and says how it must be refused.

The small model has four nodes: 0 image_conv2d, 1 binary_conv2d, 2 avg_pool2d, 3 conv2d.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tests.runtime.hostile_containers import Hostile, changed, key, without
from tests.runtime.packed_file import AFFINE, Array, PackedFile, pack_bits, window

POOL: dict[str, Any] = {"kernel": (2, 2), "stride": (2, 2), "pads": (0, 0, 0, 0)}


def attribute(node: int, name: str, kind: str, value: object) -> Callable[[], bytes]:
    """The small model with an attribute of a node set."""
    return key(f"bitedge.node.{node}.{name}", kind, value)


def tensor(name: str, array: Array) -> Callable[[], bytes]:
    """The small model with a tensor set."""
    return changed(lambda file: file.tensors.__setitem__(name, array))


def no_tensor(name: str) -> Callable[[], bytes]:
    """The small model without a tensor."""
    return changed(lambda file: file.tensors.pop(name))


def floats(*shape: int, number: float = 1.0) -> Array:
    """A float32 tensor of one number."""
    return np.full(shape, number, np.float32)


def signs(*shape: int) -> Array:
    """Packed bits, all +1; the last dimension counts channels."""
    return pack_bits(np.ones(shape, np.int8))


def single(
    op: str, tensors: Mapping[str, Array], *, shape: Sequence[int] = (4, 4, 3), kind: str = "float32", **attributes: Any
) -> Callable[[], bytes]:
    """A model of one node."""

    def make() -> bytes:
        file = PackedFile.start(shape, kind=kind)
        file.node(op, [0], ["out"], tensors, **attributes)
        return file.finish(1).build()

    return make


def bits_then(op: str, tensors: Mapping[str, Array], *, inputs: Sequence[int] = (1,), **attributes: Any) -> Any:
    """A model that turns its 4x4x3 float input into bits, and then has one more node."""

    def make() -> bytes:
        file = PackedFile.start((4, 4, 3), kind="float32")
        file.node("elementwise", [0], ["bits"], {}, **{**AFFINE, "emit": "bits"})
        file.node(op, inputs, ["out"], tensors, **attributes)
        return file.finish(2).build()

    return make


def same_names() -> bytes:
    """Two values of one name."""
    file = PackedFile.start((4, 4, 3), kind="float32")
    file.node("softmax", [0], ["image"], {})
    return file.finish(1).build()


MODELS = [
    Hostile("input_kind", key("bitedge.input.kind", "string", "int8"), "is 'int8', expected 'uint8' or 'float32'"),
    Hostile("input_rank", key("bitedge.input.shape", "u32[]", [6, 6]), "has 2 elements, expected 3"),
    Hostile(
        "input_void", key("bitedge.input.shape", "u32[]", [6, 0, 3]), "'bitedge.input.shape' has a dimension of size"
    ),
    Hostile("input_large", key("bitedge.input.shape", "u32[]", [2**31, 2**31, 4]), "has more than 268435456 elements"),
    Hostile("input_type", key("bitedge.input.shape", "i32[]", [6, 6, 3]), "is i32[], expected u32[]"),
    Hostile("no_name", without("general.name"), "the key 'general.name' is missing"),
    Hostile("no_nodes", key("bitedge.graph.nodes", "u32", 0), "0 nodes, expected 1 to 4096"),
    Hostile("many_nodes", key("bitedge.graph.nodes", "u32", 4097), "4097 nodes, expected 1 to 4096"),
    Hostile("missing_node", key("bitedge.graph.nodes", "u32", 5), "the key 'bitedge.node.4.op' is missing"),
    Hostile(
        "forgotten_node", key("bitedge.graph.nodes", "u32", 3), "the key 'bitedge.node.3.activation' belongs to no"
    ),
    Hostile("output_range", key("bitedge.graph.output", "u32", 5), "is 5, expected a value that a node makes"),
    Hostile("output_input", key("bitedge.graph.output", "u32", 0), "is 0, expected a value that a node makes"),
    Hostile("output_bits", key("bitedge.graph.output", "u32", 1), "the output 'stem' is bits, expected float32"),
    Hostile("same_names", same_names, "two values have the name 'image'"),
    Hostile("empty_name", key("bitedge.input.name", "string", ""), "a value has an empty name"),
    Hostile("labels", key("bitedge.labels", "string[]", ["a", "b"]), "2 labels for 5 outputs"),
    Hostile(
        "json", key("bitedge.preprocessing", "string", "{size: 6}"), "'bitedge.preprocessing' is not a JSON object"
    ),
    Hostile("json_list", key("bitedge.training", "string", "[1]"), "'bitedge.training' is not a JSON object"),
    Hostile("json_deep", key("bitedge.training", "string", '{"a":' + "[" * 99999), "'bitedge.training' is not a JSON"),
    Hostile("golden_half", key("bitedge.golden.count", "u32", 1), "golden vectors need all of"),
    Hostile(
        "stray_key", key("bitedge.node.9.op", "string", "softmax"), "the key 'bitedge.node.9.op' belongs to no node"
    ),
    Hostile("leading_zero", key("bitedge.node.00.op", "string", "softmax"), "'bitedge.node.00.op' belongs to no node"),
    Hostile("stray_tensor", tensor("node.7.weight", floats(4)), "the tensor 'node.7.weight' belongs to no node"),
    Hostile("stray_scale", tensor("node.0.scale", floats(4)), "the tensor 'node.0.scale' belongs to no node, or not"),
]

NODES = [
    Hostile("unknown_op", attribute(0, "op", "string", "exec"), "node 0 has the unknown op 'exec'"),
    Hostile("no_outputs", attribute(0, "outputs", "string[]", []), "node 0 has no outputs"),
    Hostile("two_names", attribute(0, "outputs", "string[]", ["a", "b"]), "names 2 outputs but makes 1"),
    Hostile("forward", attribute(1, "inputs", "u32[]", [2]), "input 2 is not an earlier value"),
    Hostile("far_input", attribute(1, "inputs", "u32[]", [2**32 - 1]), "input 4294967295 is not an earlier value"),
    Hostile("no_input", attribute(2, "inputs", "u32[]", []), "0 inputs, expected 1"),
    Hostile(
        "many_inputs", attribute(3, "inputs", "u32[]", [3, 3, 3]), "3 inputs, expected 1, and at most one residual"
    ),
    Hostile("kind_image", attribute(1, "inputs", "u32[]", [0]), "its input 'image' is uint8, expected bits"),
    Hostile("kind_bits", attribute(3, "inputs", "u32[]", [1]), "its input 'stem' is bits, expected float32"),
    Hostile("kind_float", single("normalize", {}), "its input 'image' is float32, expected uint8"),
    Hostile(
        "unknown_attribute", attribute(0, "pad_value", "i32", 0), "the key 'bitedge.node.0.pad_value' belongs to no"
    ),
    Hostile("no_stride", without("bitedge.node.0.stride"), "the key 'bitedge.node.0.stride' is missing"),
    Hostile("kernel_0", attribute(0, "kernel", "u32[]", [0, 3]), "kernel is 0, expected 1 to 65535"),
    Hostile("stride_0", attribute(0, "stride", "u32[]", [1, 0]), "stride is 0, expected 1 to 65535"),
    Hostile("stride_large", attribute(0, "stride", "u32[]", [65536, 1]), "stride is 65536, expected 1 to 65535"),
    Hostile("dilation_0", attribute(0, "dilation", "u32[]", [0, 1]), "dilation is 0, expected 1 to 65535"),
    Hostile("pads_large", attribute(0, "pads", "u32[]", [0, 0, 0, 2**31]), "pads is 2147483648, expected 0 to 65535"),
    Hostile(
        "pads_few", attribute(0, "pads", "u32[]", [1, 1]), "the key 'bitedge.node.0.pads' has 2 elements, expected 4"
    ),
    Hostile("groups_0", attribute(0, "groups", "u32", 0), "groups is 0, which does not divide 3"),
    Hostile("groups_in", attribute(0, "groups", "u32", 2), "groups is 2, which does not divide 3"),
    Hostile("groups_out", attribute(0, "groups", "u32", 3), "groups is 3, which does not divide 4 output channels"),
    Hostile("pad_value", attribute(1, "pad_value", "i32", 2), "pad_value is 2, expected -1, 0 or 1"),
    Hostile("window_large", attribute(0, "dilation", "u32[]", [9, 1]), "the window spans 19 of a padded height of 8"),
    Hostile("window_wide", attribute(0, "dilation", "u32[]", [1, 65535]), "spans 131071 of a padded width of 8"),
    Hostile("weight_missing", no_tensor("node.0.weight"), "the tensor 'node.0.weight' is missing"),
    Hostile("weight_type", tensor("node.0.weight", floats(4, 3, 3, 1)), "'node.0.weight' is F32, expected I64"),
    Hostile(
        "weight_shape", tensor("node.0.weight", signs(4, 3, 2, 3)), "has the shape [4, 3, 2, 1], expected [4, 3, 3, 1]"
    ),
    Hostile("weight_rank", tensor("node.3.weight", floats(5, 8)), "has the shape [5, 8], expected [5, 1, 1, 8]"),
    Hostile(
        "tail_bits", tensor("node.1.weight", signs(8, 3, 3, 4) | 16), "'node.1.weight' has tail bits that are not 0"
    ),
    Hostile("nan", tensor("node.3.weight", floats(5, 1, 1, 8, number=float("nan"))), "not finite, at 0"),
    Hostile(
        "half_inf", tensor("node.3.weight", floats(5, 1, 1, 8, number=np.inf).astype(np.float16)), "'node.3.weight' has"
    ),
    Hostile(
        "epilogue", attribute(0, "epilogue", "string", "gelu"), "epilogue is 'gelu', expected 'threshold' or 'affine'"
    ),
    Hostile("threshold_shape", tensor("node.0.threshold", np.zeros(3, np.int32)), "has the shape [3], expected [4]"),
    Hostile("threshold_type", tensor("node.0.threshold", floats(4)), "'node.0.threshold' is F32, expected I32"),
    Hostile(
        "threshold_float", attribute(3, "epilogue", "string", "threshold"), "a threshold needs an integer convolution"
    ),
    Hostile("scale_alone", no_tensor("node.1.bias"), "scale and bias come together or not at all"),
    Hostile("scale_shape", tensor("node.1.scale", floats(1)), "'node.1.scale' has the shape [1], expected [8]"),
    Hostile(
        "bias_inf", tensor("node.1.bias", floats(8, number=np.inf)), "'node.1.bias' has a number that is not finite"
    ),
    Hostile(
        "activation", attribute(1, "activation", "string", "gelu"), "activation is 'gelu', expected 'none', 'relu'"
    ),
    Hostile("emit", attribute(1, "emit", "string", "int8"), "emit is 'int8', expected 'float', 'bits' or 'float+bits'"),
    Hostile("emit_two", attribute(1, "emit", "string", "float+bits"), "names 1 outputs but makes more"),
    Hostile("no_slope", attribute(1, "activation", "string", "prelu"), "the tensor 'node.1.slope' is missing"),
    Hostile("stray_slope", tensor("node.1.slope", floats(8)), "the tensor 'node.1.slope' belongs to no node"),
    Hostile(
        "residual_shape",
        attribute(1, "inputs", "u32[]", [1, 1]),
        "the residual 'stem' is 6 x 6 x 4, the output 3 x 3 x 8",
    ),
    Hostile("residual_image", attribute(3, "inputs", "u32[]", [3, 0]), "the residual 'image' is uint8"),
    Hostile("include_pad_type", attribute(2, "count_include_pad", "u32", 1), "is u32, expected bool"),
    Hostile(
        "pool_groups", attribute(2, "groups", "u32", 1), "the key 'bitedge.node.2.groups' belongs to no node, or not"
    ),
    Hostile("pool_residual", attribute(2, "inputs", "u32[]", [2, 2]), "2 inputs, expected 1"),
]

OPERATORS = [
    Hostile(
        "pool_padding",
        single("avg_pool2d", {}, **{**POOL, "pads": (2, 0, 0, 0)}, count_include_pad=True),
        "window 0 of the pooling sees only padding",
    ),
    Hostile(
        "pool_dilated",
        single("max_pool2d", {}, **{**POOL, "pads": (1, 0, 4, 0), "stride": (1, 1)}, dilation=(5, 1)),
        "window 0 of the pooling sees only padding",
    ),
    Hostile(
        "pool_behind",
        single("max_pool2d", {}, **{**POOL, "pads": (0, 0, 0, 3)}, dilation=(1, 1)),
        "window 2 of the pooling sees only padding",
    ),
    Hostile(
        "min_on_float",
        single("max_pool2d", {"min_channels": signs(3)}, **POOL, dilation=(1, 1)),
        "min_channels needs an input of bits",
    ),
    Hostile(
        "min_tail",
        bits_then("max_pool2d", {"min_channels": signs(3) | 8}, **POOL, dilation=(1, 1)),
        "'node.1.min_channels' has tail bits that are not 0",
    ),
    Hostile(
        "eps_0", single("layer_norm", {"weight": floats(3), "bias": floats(3)}, eps=0.0), "eps is not a positive number"
    ),
    Hostile(
        "eps_nan",
        single("layer_norm", {"weight": floats(3), "bias": floats(3)}, eps=float("nan")),
        "eps is not a positive number",
    ),
    Hostile("norm_bias", single("layer_norm", {"weight": floats(3)}, eps=1e-3), "the tensor 'node.0.bias' is missing"),
    Hostile("softmax_bits", bits_then("softmax", {}), "its input 'bits' is bits, expected float32"),
    Hostile(
        "elementwise_image", single("elementwise", {}, kind="uint8", **AFFINE), "is uint8, expected float32 or bits"
    ),
    Hostile(
        "elementwise_threshold", bits_then("elementwise", {}, epilogue="threshold"), "needs an integer convolution"
    ),
    Hostile(
        "threshold_residual",
        bits_then(
            "binary_conv2d",
            {"weight": signs(3, 1, 1, 3), "threshold": np.zeros(3, np.int32)},
            inputs=(1, 1),
            **window(),
            pad_value=0,
            epilogue="threshold",
        ),
        "a threshold takes no residual",
    ),
    Hostile(
        "slope_shape",
        single("elementwise", {"slope": floats(2)}, **{**AFFINE, "activation": "prelu"}),
        "'node.0.slope' has the shape [2], expected [3]",
    ),
    Hostile(
        "image_taps",
        single(
            "image_conv2d",
            {"weight": signs(1, 256, 257, 1)},
            shape=(256, 257, 1),
            kind="uint8",
            **window((256, 257)),
            **AFFINE,
        ),
        "65792 taps per output, at most 65536",
    ),
    Hostile(
        "taps",
        single("conv2d", {"weight": floats(1, 1, 1, 1)}, **window((65535, 65535), pads=(65535,) * 4), **AFFINE),
        "12884508675 taps per output, at most 8388608",
    ),
    Hostile(
        "padded_large",
        single("conv2d", {"weight": floats(1, 1, 1, 3)}, **window(stride=(65535, 65535), pads=(65535,) * 4), **AFFINE),
        "the padded input of 131074 x 131074 x 3 has more than 268435456 elements",
    ),
    Hostile(
        "output_wide",
        single("conv2d", {"weight": floats(128, 1, 1, 3)}, **window(pads=(1000, 1000, 1000, 1000)), **AFFINE),
        "the output of 2004 x 2004 x 128 has more than 268435456 elements",
    ),
]

GRAPHS = MODELS + NODES + OPERATORS
