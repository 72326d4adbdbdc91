"""Random models over all operators.

Float weights are halves and no float convolution reads another one's floats, so that every sum is exact in float32 and
values can be compared bit for bit, whatever the order of summation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tests.runtime.packed_file import AFFINE, Array, PackedFile, pack_bits

OPS = {
    "uint8": ("normalize", "image_conv2d"),
    "float32": ("conv2d", "elementwise", "max_pool2d", "avg_pool2d", "layer_norm", "softmax"),
    "bits": ("binary_conv2d", "binary_conv2d", "elementwise", "max_pool2d"),
}
NEW_OPS = {
    "uint8": (),
    "float32": ("concat", "gather_channels", "group_norm", "adaptive_avg_pool2d", "avg_pool2d"),
    "bits": ("concat", "gather_channels"),
}
"""Of version 2."""
EXACT_STEPS = ("fma", "add", "multiply", "relu", "prelu", "clamp", "hardsigmoid", "hardswish")
STEPS = (*EXACT_STEPS, "sigmoid", "tanh", "silu", "gelu", "gelu_tanh")
EXACT = (
    "normalize",
    "image_conv2d",
    "conv2d",
    "elementwise",
    "max_pool2d",
    "binary_conv2d",
    "concat",
    "gather_channels",
)
CHANNELS = (1, 2, 3, 5, 8, 16, 31, 32, 33, 63, 64, 65, 96, 127, 128, 130)


class Generator:
    """Grows a model node by node, and knows the kind and the shape of every value."""

    def __init__(self, seed: int, *, exact: bool, version: int = 1) -> None:
        self.rng = np.random.default_rng(seed)
        self.exact = exact
        self.version = version
        shape = (self.pick((5, 8, 9)), self.pick((4, 7, 8)), self.pick((1, 3, 4)))
        kind = self.pick(("uint8", "uint8", "float32"))
        self.file = PackedFile.start(shape, kind=kind, name=f"random {seed}", version=version)
        self.values: list[tuple[str, tuple[int, int, int]]] = [(kind, shape)]
        self.wide = [False]
        """Whether a value holds floats that came through a float convolution."""

    def pick(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def grid(self, *shape: int) -> Array:
        return self.rng.choice(np.array([-1, -0.5, 0.5, 1], np.float32), shape)

    def bits(self, *shape: int) -> Array:
        return pack_bits(self.rng.choice([-1, 1], shape))

    def add(
        self, op: str, inputs: list[int], made: Sequence[Any], tensors: dict[str, Array], **attributes: Any
    ) -> None:
        names = [f"v{len(self.values) + i}" for i in range(len(made))]
        self.file.node(op, inputs, names, tensors, **attributes)
        self.values.extend(made)
        wide = op == "conv2d" or "steps" in attributes or any(self.wide[i] for i in inputs)
        self.wide.extend(wide and kind == "float32" for kind, _ in made)

    def window(self, shape: tuple[int, int, int], *, pool: bool) -> tuple[dict[str, Any], tuple[int, int]]:
        """A window that fits, and the size of what it makes."""
        kernel, stride, dilation, pads, size = [], [], [], [0, 0, 0, 0], []
        for axis in range(2):
            k = min(self.pick((1, 2, 3, 3, 5)), shape[axis])
            d = self.pick((1, 1, 2)) if not pool and 2 * (k - 1) + 1 <= shape[axis] else 1
            span = d * (k - 1) + 1
            before, after = (int(self.rng.integers(0, k)) for _ in range(2))
            s = self.pick((1, 1, 2, 3))
            kernel.append(k)
            stride.append(s)
            dilation.append(d)
            pads[axis], pads[axis + 2] = before, after
            size.append((shape[axis] + before + after - span) // s + 1)
        attributes = {"kernel": kernel, "stride": stride, "pads": pads, "dilation": dilation}
        return attributes, (size[0], size[1])

    def convolution(self, op: str, source: int) -> None:
        _, shape = self.values[source]
        attributes, size = self.window(shape, pool=False)
        divisors = [g for g in (1, 2, 3, 4) if shape[2] % g == 0]
        groups = self.pick(divisors)
        out = self.pick([c for c in CHANNELS if c % groups == 0] or [groups])
        shape_of_weight = (out, *attributes["kernel"], shape[2] // groups)
        if op == "conv2d":
            weight = self.grid(*shape_of_weight).astype(self.pick((np.float32, np.float16)))
        else:
            weight = self.bits(*shape_of_weight)
        extra = {"pad_value": self.pick((0, 1, -1))} if op == "binary_conv2d" else {}
        self.epilogue(op, source, (*size, out), {"weight": weight}, {**attributes, "groups": groups, **extra})

    def epilogue(
        self, op: str, source: int, shape: tuple[int, int, int], tensors: dict[str, Array], attributes: dict[str, Any]
    ) -> None:
        channels, inputs = shape[2], [source]
        if op in ("binary_conv2d", "image_conv2d") and self.pick((True, False)):
            taps = int(np.prod(attributes["kernel"])) * 3
            threshold = self.rng.integers(-taps, taps, channels).astype(np.int32)
            attributes = {**attributes, "epilogue": "threshold"}
            return self.add(op, inputs, [("bits", shape)], {**tensors, "threshold": threshold}, **attributes)
        if self.version == 2 and self.pick((True, True, False)):
            return self.steps(op, source, shape, tensors, attributes)
        if self.pick((True, True, False)):
            tensors = {**tensors, "scale": self.grid(channels), "bias": self.grid(channels)}
        residuals = [i for i, (kind, other) in enumerate(self.values) if other == shape and kind != "uint8"]
        if residuals and self.pick((True, False)):
            inputs.append(self.pick(residuals))
        activation = self.pick(("none", "relu", "prelu"))
        if activation == "prelu":
            tensors = {**tensors, "slope": self.grid(self.pick((1, channels)))}
        emit = self.pick(("float", "bits", "float+bits"))
        kinds = {"float": ["float32"], "bits": ["bits"], "float+bits": ["float32", "bits"]}[emit]
        form = {**AFFINE, "activation": activation, "emit": emit}
        return self.add(op, inputs, [(kind, shape) for kind in kinds], tensors, **attributes, **form)

    def steps(
        self, op: str, source: int, shape: tuple[int, int, int], tensors: dict[str, Array], attributes: dict[str, Any]
    ) -> None:
        """An epilogue of one to six steps."""
        channels, inputs = shape[2], [source]
        names: list[str] = []
        operands = {
            "add": [i for i, (kind, other) in enumerate(self.values) if other == shape and kind != "uint8"],
            "multiply": [
                i
                for i, (kind, other) in enumerate(self.values)
                if kind == "float32" and other in (shape, (1, 1, channels))
            ],
        }
        for _ in range(int(self.rng.integers(1, 7))):
            name, k = self.pick(EXACT_STEPS if self.exact else STEPS), len(names)
            if name in operands and not operands[name]:
                continue
            if name in operands:
                inputs.append(self.pick(operands[name]))
            elif name == "fma":
                tensors = {**tensors, f"step.{k}.scale": self.grid(channels), f"step.{k}.bias": self.grid(channels)}
            elif name == "prelu":
                tensors = {**tensors, f"step.{k}.slope": self.grid(self.pick((1, channels)))}
            elif name == "clamp":
                attributes = {**attributes, f"step.{k}.min": self.pick((-1.0, 0.0)), f"step.{k}.max": 6.0}
            names.append(name)
        emit = self.pick(("float", "bits", "float+bits"))
        kinds = {"float": ["float32"], "bits": ["bits"], "float+bits": ["float32", "bits"]}[emit]
        form = {"epilogue": "steps", "steps": names or ["relu"], "emit": emit}
        self.add(op, inputs, [(kind, shape) for kind in kinds], tensors, **attributes, **form)

    def of_version_2(self, op: str, source: int) -> None:
        kind, shape = self.values[source]
        height, width, channels = shape
        if op == "concat":
            like = [i for i, (other, size) in enumerate(self.values) if other == kind and size[:2] == shape[:2]]
            inputs = [self.pick(like) for _ in range(int(self.rng.integers(2, 5)))]
            total = sum(self.values[i][1][2] for i in inputs)
            self.add(op, inputs, [(kind, (height, width, total))], {})
        elif op == "gather_channels":
            count = self.pick(CHANNELS)
            index = self.rng.integers(-1 if kind == "float32" else 0, channels, count).astype(np.int32)
            self.add(op, [source], [(kind, (height, width, count))], {"index": index})
        elif op == "group_norm":
            groups = self.pick([g for g in (1, 2, 3, 4, 8) if channels % g == 0])
            tensors = {"weight": self.grid(channels), "bias": self.grid(channels)}
            self.add(op, [source], [(kind, shape)], tensors, groups=groups, eps=1e-3)
        else:
            size = (self.pick((1, 2, 3, 7)), self.pick((1, 2, 3, 7)))
            self.add(op, [source], [(kind, (*size, channels))], {}, size=size)

    def pool(self, op: str, source: int) -> None:
        kind, shape = self.values[source]
        attributes, size = self.window(shape, pool=True)
        tensors = {}
        if op == "avg_pool2d":
            del attributes["dilation"]
            attributes["count_include_pad"] = self.pick((0, 1))
            if self.version == 2:
                attributes["overhang"] = [int(self.rng.integers(0, pad + 1)) for pad in attributes["pads"][2:]]
        elif kind == "bits" and self.pick((True, False)):
            tensors["min_channels"] = self.bits(shape[2])
        self.add(op, [source], [(kind, (*size, shape[2]))], tensors, **attributes)

    def grow(self, source: int) -> None:
        kind, shape = self.values[source]
        ops = (*OPS[kind], *(NEW_OPS[kind] if self.version == 2 else ()))
        usable = [op for op in ops if op in EXACT or not self.exact]
        op = self.pick([op for op in usable if op != "conv2d" or not self.wide[source]])
        if op in ("conv2d", "binary_conv2d", "image_conv2d"):
            self.convolution(op, source)
        elif op == "elementwise":
            self.epilogue(op, source, shape, {}, {})
        elif op in ("max_pool2d", "avg_pool2d"):
            self.pool(op, source)
        elif op in NEW_OPS[kind]:
            self.of_version_2(op, source)
        elif op == "softmax":
            self.add(op, [source], [("float32", shape)], {})
        else:
            first, second = ("scale", "offset") if op == "normalize" else ("weight", "bias")
            tensors = {first: self.grid(shape[2]), second: self.grid(shape[2])}
            self.add(op, [source], [("float32", shape)], tensors, **({"eps": 1e-3} if op == "layer_norm" else {}))


def random_model(seed: int, *, nodes: int = 6, exact: bool = True, version: int = 1) -> PackedFile:
    """A model of so many nodes and a dense layer on top; `exact` leaves out what divides, takes roots or exponents."""
    generator = Generator(seed, exact=exact, version=version)
    while generator.file.nodes < nodes:
        last = len(generator.values) - 1
        generator.grow(int(generator.rng.integers(max(0, last - 1), last + 1)))
    kind, shape = generator.values[-1]
    if kind == "float32":
        binarize = {**AFFINE, "emit": "bits"}
        generator.add("elementwise", [len(generator.values) - 1], [("bits", shape)], {}, **binarize)
    weight = {"weight": generator.bits(4, *shape)}
    window = {"kernel": shape[:2], "stride": (1, 1), "pads": (0,) * 4, "dilation": (1, 1), "groups": 1, "pad_value": 0}
    generator.add("binary_conv2d", [len(generator.values) - 1], [("float32", (1, 1, 4))], weight, **window, **AFFINE)
    return generator.file.finish(len(generator.values) - 1)


def random_images(file: PackedFile, seed: int, count: int = 3) -> Array:
    """Images that the model takes; floats lie on the grid too."""
    shape = (count, *file.keys["bitedge.input.shape"][1])
    pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    if file.keys["bitedge.input.kind"][1] == "uint8":
        return pixels
    return (pixels.astype(np.float32) - 128) / 32
