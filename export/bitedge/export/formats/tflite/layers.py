"""Steps of an epilogue, and layers over channels and groups, as TensorFlow operations. Only a child imports it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bitedge.export.ir import ops
from bitedge.export.ir.graph import Shape
from bitedge.export.ir.reference import adaptive_parts

Tensor = Any


def apply_step(step: ops.Step, y: Tensor) -> Tensor:
    """Apply a step that reads nothing but y."""
    if step.kind == "prelu":
        return tf.maximum(y, 0.0) + step.slope * tf.minimum(y, 0.0)
    if step.kind == "clamp":
        return tf.minimum(tf.maximum(y, np.float32(step.min)), np.float32(step.max))
    return _FUNCTIONS[step.kind](y)


def _gelu_tanh(y: Tensor) -> Tensor:
    inner = math.sqrt(2 / math.pi) * (y + 0.044715 * y * y * y)
    return 0.5 * y * (1.0 + tf.tanh(inner))


def _erf(y: Tensor) -> Tensor:
    """The error function to 1.5e-7 (Abramowitz and Stegun 7.1.26): TFLite has no operator for it."""
    size = tf.abs(y)
    t = 1.0 / (1.0 + 0.3275911 * size)
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return tf.sign(y) * (1.0 - series * tf.exp(-size * size))


_FUNCTIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": tf.nn.relu,
    "sigmoid": tf.sigmoid,
    "tanh": tf.tanh,
    "silu": lambda y: y * tf.sigmoid(y),
    "hardsigmoid": lambda y: tf.minimum(tf.maximum(y + 3.0, 0.0), 6.0) / 6.0,
    "hardswish": lambda y: y * tf.minimum(tf.maximum(y + 3.0, 0.0), 6.0) / 6.0,
    "gelu": lambda y: 0.5 * y * (1.0 + _erf(y * math.sqrt(0.5))),
    "gelu_tanh": _gelu_tanh,
}


def group_norm(op: ops.GroupNorm, x: Tensor, shape: Shape) -> Tensor:
    """Normalize groups of channels over the whole map."""
    height, width, channels = shape
    grouped = tf.reshape(x, [1, height * width, op.groups, channels // op.groups])
    centred = grouped - tf.reduce_mean(grouped, axis=[1, 3], keepdims=True)
    spread = tf.math.rsqrt(tf.reduce_mean(centred * centred, axis=[1, 3], keepdims=True) + np.float32(op.eps))
    return tf.reshape(centred * spread, [1, *shape]) * op.weight + op.bias


def adaptive_avg_pool2d(op: ops.AdaptiveAvgPool2d, x: Tensor, shape: Shape) -> Tensor:
    """Average over parts of the map, rows first."""
    rows = [tf.reduce_mean(x[:, p.start : p.stop], axis=1, keepdims=True) for p in adaptive_parts(shape[0], op.size[0])]
    x = tf.concat(rows, axis=1)
    parts = adaptive_parts(shape[1], op.size[1])
    return tf.concat([tf.reduce_mean(x[:, :, p.start : p.stop], axis=2, keepdims=True) for p in parts], axis=2)


def gather_channels(op: ops.GatherChannels, x: Tensor, shape: Shape) -> Tensor:
    """Pick channels; the one after the last is 0."""
    if (op.index < 0).any():
        x = tf.pad(x, [[0, 0], [0, 0], [0, 0], [0, 1]])
    return tf.gather(x, np.where(op.index < 0, shape[2], op.index).astype(np.int32), axis=3)
