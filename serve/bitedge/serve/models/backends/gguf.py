"""Run a packed `.gguf` file in the bitedge core."""

from __future__ import annotations

import hashlib
from typing import Any

from bitedge.serve.api.errors import ModelFaultError
from bitedge.serve.inference.preprocessing import Preprocessing
from bitedge.serve.models.backends import ServedModel, check_geometry, checked_labels, training_facts

BINARY_OPERATORS = ("binary_conv2d", "image_conv2d")


def load_gguf(data: bytes, name: str, version: str, kernels: str | None) -> ServedModel:
    """Load a `.gguf` into the bitedge core."""
    from bitedge.runtime import Model, RuntimeFault

    try:
        core = Model(data, kernels=kernels)
        core.check()
    except RuntimeFault as error:
        raise ModelFaultError(str(error)) from None
    height, width, channels = core.input_shape
    nodes = core.nodes
    geometry = (
        Preprocessing.of(core.preprocessing)
        if core.preprocessing
        else Preprocessing(height=height, width=width, channels=channels if channels in (1, 3) else 3)
    )
    check_geometry(geometry, (height, width, channels))
    return ServedModel(
        name=name,
        version=version,
        backend="bitedge",
        platform="bitedge_gguf",
        make_runner=lambda: core.context().run,
        labels=checked_labels(core.labels, core.output_count),
        geometry=geometry,
        input_name=str(core.metadata.get("bitedge.input.name", "input")),
        input_shape=(height, width, channels),
        input_type="UINT8" if core.input_kind == "uint8" else "FP32",
        output_name=core.values[int(core.metadata["bitedge.graph.output"])].name,
        output_count=core.output_count,
        sha256=hashlib.sha256(data).hexdigest(),
        size=len(data),
        preprocessing=core.preprocessing,
        facts={
            "kernels": sorted({node.kernel for node in nodes if node.op in BINARY_OPERATORS and node.kernel}),
            "one_bit_weights": one_bit_share(nodes),
            "macs": sum(node.macs for node in nodes),
            **training_facts(core.metadata.get("bitedge.training")),
        },
    )


def one_bit_share(nodes: Any) -> float | None:
    """The share of weights that are one bit; a convolution has `macs / output pixels` weights."""
    binary = total = 0.0
    for node in nodes:
        weights = node.macs / max(1, node.shape[0] * node.shape[1])
        total += weights
        binary += weights if node.op in BINARY_OPERATORS else 0
    return binary / total if total else None
