"""Files of version 2 that break a rule of what is new in it: each says how it must be refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tests.runtime.hostile_containers import Hostile
from tests.runtime.hostile_graphs import POOL, floats, signs
from tests.runtime.packed_file import AFFINE, Array, PackedFile, steps, window

NORM = {"weight": floats(6), "bias": floats(6)}
FMA = {"step.0.scale": floats(6), "step.0.bias": floats(6)}


def node(
    op: str, inputs: Sequence[int], tensors: Mapping[str, Array] | None = None, *, version: int = 2, **attributes: Any
) -> Callable[[], bytes]:
    """A model with one node of interest, over 0 image 4x4x6, 1 bits of it, 2 pooled 2x2x6, 3 mean 1x1x6."""

    def make() -> bytes:
        file = PackedFile.start((4, 4, 6), kind="float32", version=version)
        file.node("elementwise", [0], ["bits"], {}, **{**AFFINE, "emit": "bits"})
        file.node("avg_pool2d", [0], ["pooled"], {}, **POOL, count_include_pad=False)
        file.node("avg_pool2d", [0], ["mean"], {}, **{**POOL, "kernel": (4, 4)}, count_include_pad=False)
        file.node(op, inputs, ["out"], tensors or {}, **attributes)
        return file.finish(4).build()

    return make


def elementwise(*names: str, inputs: Sequence[int] = (0,), tensors: Any = None, clamp: Any = None) -> Any:
    """The node of interest is an epilogue of steps."""
    return node("elementwise", inputs, tensors, **steps(*names, parameters=clamp))


def concat_large() -> bytes:
    """Two values that are just small enough, together."""
    file = PackedFile.start((4, 4, 6), kind="float32", version=2)
    file.node("adaptive_avg_pool2d", [0], ["large"], {}, size=(5000, 5000))
    file.node("concat", [1, 1], ["out"], {})
    return file.finish(2).build()


def index(*numbers: int) -> dict[str, Array]:
    """The tensor of gather_channels."""
    return {"index": np.array(numbers, np.int32)}


OPERATORS = [
    Hostile("old_concat", node("concat", [0, 0], version=1), "(concat 'out'): needs format version 2, the file says 1"),
    Hostile("concat_one", node("concat", [0]), "1 inputs, expected 2 or more"),
    Hostile("concat_kinds", node("concat", [0, 1]), "its input 'bits' is bits, the first one float32"),
    Hostile("concat_sizes", node("concat", [0, 2]), "its input 'pooled' is 2 x 2, the first one 4 x 4"),
    Hostile("concat_large", concat_large, "the output of 5000 x 5000 x 12 has more than 268435456"),
    Hostile("index_large", node("gather_channels", [0], index(0, 6)), "index 1 is 6, expected -1 to 5"),
    Hostile("index_small", node("gather_channels", [0], index(-2)), "index 0 is -2, expected -1 to 5"),
    Hostile("index_bits", node("gather_channels", [1], index(-1)), "index 0 is -1, expected 0 to 5"),
    Hostile("index_type", node("gather_channels", [0], {"index": floats(2)}), "'node.3.index' is F32, expected I32"),
    Hostile(
        "index_rank", node("gather_channels", [0], {"index": index(0, 1)["index"].reshape(2, 1)}), "[2, 1], expect"
    ),
    Hostile("norm_groups", node("group_norm", [0], NORM, groups=4, eps=1e-3), "groups is 4, which does not divide 6"),
    Hostile(
        "group_eps", node("group_norm", [0], NORM, groups=2, eps=-1.0), "(group_norm 'out'): eps is not a positive"
    ),
    Hostile(
        "norm_bits", node("group_norm", [1], NORM, groups=2, eps=1e-3), "its input 'bits' is bits, expected float32"
    ),
    Hostile("size_0", node("adaptive_avg_pool2d", [0], size=(1, 0)), "size is 0, expected 1 to 65535"),
    Hostile("size_large", node("adaptive_avg_pool2d", [0], size=(65535, 65535)), "65535 x 65535 x 6 has more than"),
    Hostile(
        "overhang",
        node("avg_pool2d", [0], **{**POOL, "pads": (0, 0, 1, 0)}, count_include_pad=True, overhang=(2, 0)),
        "overhang is 2, more than the 1 rows of padding there",
    ),
    Hostile(
        "overhang_wide",
        node("avg_pool2d", [0], **POOL, count_include_pad=True, overhang=(0, 1)),
        "overhang is 1, more than the 0 columns of padding there",
    ),
    Hostile(
        "old_overhang",
        node("avg_pool2d", [0], **POOL, count_include_pad=True, overhang=(0, 0), version=1),
        "the key 'bitedge.node.3.overhang' belongs to no node",
    ),
]

STEPS = [
    Hostile("old_steps", node("elementwise", [0], version=1, **steps("relu")), "'steps', expected 'threshold' or 'aff"),
    Hostile("no_steps", elementwise(), "0 steps, expected 1 to 16"),
    Hostile("many_steps", elementwise(*["relu"] * 17), "17 steps, expected 1 to 16"),
    Hostile("unknown_step", elementwise("relu", "exec"), "step 1 is the unknown 'exec'"),
    Hostile("no_scale", elementwise("fma"), "the tensor 'node.3.step.0.scale' is missing"),
    Hostile("stray_step", elementwise("relu", tensors=FMA), "the tensor 'node.3.step.0.bias' belongs to no node"),
    Hostile("step_shape", elementwise("prelu", tensors={"step.0.slope": floats(5)}), "has the shape [5], expected [6]"),
    Hostile(
        "clamp_order",
        elementwise("clamp", clamp={"0.min": 1.0, "0.max": 0.0}),
        "step 0 clamps, but its min is not at most its",
    ),
    Hostile(
        "clamp_nan",
        elementwise("relu", "clamp", clamp={"1.min": float("nan"), "1.max": 0.0}),
        "step 1 clamps, but its min is",
    ),
    Hostile(
        "clamp_missing", elementwise("clamp", clamp={"0.min": 0.0}), "the key 'bitedge.node.3.step.0.max' is missing"
    ),
    Hostile("step_inputs", elementwise("add"), "1 inputs, expected 2: one, and one for each 'add' and 'multiply'"),
    Hostile("unread_input", elementwise("relu", inputs=(0, 0)), "2 inputs, expected 1: one, and one for each 'add'"),
    Hostile("add_shape", elementwise("add", inputs=(0, 3)), "the residual 'mean' is 1 x 1 x 6, the output 4 x 4 x 6"),
    Hostile("factor_shape", elementwise("multiply", inputs=(0, 2)), "the factor 'pooled' is 2 x 2 x 6, the output 4 x"),
    Hostile("factor_bits", elementwise("multiply", inputs=(0, 1)), "the factor 'bits' is bits, expected float32"),
    Hostile(
        "new_epilogue", node("elementwise", [0], epilogue="relu"), "'relu', expected 'threshold', 'affine' or 'steps'"
    ),
    Hostile(
        "steps_threshold",
        node(
            "binary_conv2d",
            [1, 0],
            {"weight": signs(6, 1, 1, 6), "threshold": np.zeros(6, np.int32)},
            **window(),
            pad_value=0,
            epilogue="threshold",
        ),
        "node 3 (binary_conv2d 'out'): a threshold takes no residual",
    ),
]

VERSION_2 = OPERATORS + STEPS
