"""Every operator of torch that can be captured, with its translation; and what to do about some that cannot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from bitedge.export.capture import elementwise, layers
from bitedge.export.capture.builder import Builder
from bitedge.export.ir import ops

aten = torch.ops.aten
Handler = Callable[..., Any]


def _each(make: Callable[..., ops.Op]) -> Handler:
    return lambda b, x, *args: elementwise.pointwise(b, make(*args), x)


def _function(kind: Any) -> Handler:
    return _each(lambda: ops.Function(kind))


IGNORED = {aten._assert_tensor_metadata.default, aten._assert_scalar.default, aten.sym_constrain_range_for_size.default}
LIKE = {
    aten.ones_like.default,
    aten.zeros_like.default,
    aten.full_like.default,
    aten.new_ones.default,
    aten.new_zeros.default,
    aten.new_full.default,
}
"""Operators that take nothing but the shape of a tensor."""

EXPANSIONS = {aten.expand.default}
VIEWS = {
    aten.reshape.default,
    aten._unsafe_view.default,
    aten.permute.default,
    aten.transpose.int,
    aten.slice.Tensor,
    aten.select.int,
    aten.split.Tensor,
    aten.split_with_sizes.default,
    aten.unbind.int,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.unsqueeze.default,
    aten.index_select.default,
    aten.index.Tensor,
    aten.flip.default,
    aten.roll.default,
    aten.channel_shuffle.default,
    aten.native_channel_shuffle.default,
    aten.pixel_shuffle.default,
    aten.pixel_unshuffle.default,
}
"""Operators that only move elements: torch applies them to the places of the elements."""

HANDLERS: Mapping[Any, Handler] = {
    aten.conv2d.default: layers.conv2d,
    aten.conv2d.padding: layers.conv2d,
    aten.linear.default: layers.linear,
    aten.matmul.default: layers.matmul,
    aten.mm.default: layers.matmul,
    aten._native_batch_norm_legit_no_training.default: layers.batch_norm,
    aten.layer_norm.default: layers.layer_norm,
    aten.group_norm.default: layers.group_norm,
    aten.instance_norm.default: layers.instance_norm,
    aten.max_pool2d.default: layers.max_pool2d,
    aten.max_pool2d_with_indices.default: lambda *args: (layers.max_pool2d(*args), None),
    aten.avg_pool2d.default: layers.avg_pool2d,
    aten.adaptive_avg_pool2d.default: layers.adaptive_avg_pool2d,
    aten.adaptive_max_pool2d.default: layers.adaptive_max_pool2d,
    aten.pad.default: layers.pad,
    aten.constant_pad_nd.default: lambda b, x, sizes, value=0.0: layers.pad(b, x, sizes, "constant", value),
    aten.relu.default: _each(ops.Relu),
    aten.relu6.default: _each(lambda: ops.Clamp(0.0, 6.0)),
    aten.hardtanh.default: lambda b, x, low=-1.0, high=1.0: elementwise.clamp(b, x, low, high),
    aten.clamp.default: elementwise.clamp,
    aten.clamp.Tensor: elementwise.clamp,
    aten.clamp_min.default: elementwise.clamp,
    aten.clamp_max.default: lambda b, x, high: elementwise.clamp(b, x, None, high),
    aten.leaky_relu.default: elementwise.leaky_relu,
    aten.prelu.default: elementwise.prelu,
    aten.gelu.default: elementwise.gelu,
    aten.sigmoid.default: _function("sigmoid"),
    aten.hardsigmoid.default: _function("hardsigmoid"),
    aten.silu.default: _function("silu"),
    aten.hardswish.default: _function("hardswish"),
    aten.tanh.default: _function("tanh"),
    aten.add.Tensor: elementwise.add,
    aten.sub.Tensor: elementwise.subtract,
    aten.rsub.Scalar: elementwise.reverse_subtract,
    aten.neg.default: elementwise.negate,
    aten.mul.Tensor: elementwise.multiply,
    aten.div.Tensor: elementwise.divide,
    aten.pow.Tensor_Scalar: elementwise.power,
    aten.square.default: lambda b, x: elementwise.power(b, x, 2),
    aten.mean.dim: elementwise.mean,
    aten.sum.dim_IntList: elementwise.summed,
    aten.amax.default: elementwise.maximum,
    aten.softmax.int: elementwise.softmax,
    aten.cat.default: elementwise.concat,
}

SUPPORTED = (
    "convolutions and dense layers, binary and float; sign functions of bitedge, torch.sign, comparisons, torch.where; "
    "BatchNorm, LayerNorm and GroupNorm over channels; ReLU, ReLU6, LeakyReLU, PReLU, Hardtanh, clamp, Sigmoid, "
    "Hardsigmoid, SiLU, Hardswish, GELU, Tanh, Softmax; max and average pooling; padding with a constant; sums, "
    "differences and products of tensors, and with parameters; concatenation, slices and shuffles of channels; "
    "flatten, view, mean, amax; dropout in evaluation"
)

_REFUSALS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("upsample_",), "upsampling is not supported; networks that answer with one vector per image do not need it"),
    (("conv_transpose",), "transposed convolution is not supported; use a convolution at the resolution you have"),
    (("lstm", "gru", "rnn_", "quantized_lstm"), "recurrent layers are not supported; use convolutions"),
    (
        ("scaled_dot_product", "_native_multi_head", "bmm", "baddbmm", "einsum"),
        "attention, a product of two tensors that depend on the image, is not supported; use convolutions",
    ),
    (("log_softmax",), "log_softmax is not supported; return the logits, or their softmax: the order is the same"),
    (("dropout", "native_dropout", "bernoulli", "rand"), "drops out in evaluation; pass training=self.training"),
    (("_native_batch_norm", "batch_norm"), "has no running statistics (track_running_stats=False)"),
    (("conv1d", "conv3d"), "only two-dimensional convolutions are supported"),
    (("argmax", "topk", "sort", "max"), "return the numbers themselves; choosing a class is up to the caller"),
)


def refusal(b: Builder, target: Any) -> Exception:
    """Make the error for an operator without a translation: what to do, where that is known, else what there is."""
    name = str(getattr(target, "overloadpacket", target)).rpartition(".")[2]
    for prefixes, what in _REFUSALS:
        if name.startswith(prefixes):
            return b.refuse(f"{what} ({name})")
    return b.refuse(f"the operation {name!r} is not supported. Supported: {SUPPORTED}")
