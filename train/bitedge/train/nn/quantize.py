"""Binarization of activations and latent weights: exact ±1 forward, a surrogate gradient backward.

`ste_sign`     Courbariaux et al., Binarized Neural Networks, https://arxiv.org/abs/1602.02830
`approx_sign`  Liu et al., Bi-Real Net, https://arxiv.org/abs/1808.00278
`swish_sign`   Darabi et al., Regularized Binary Network Training, https://arxiv.org/abs/1812.11800

All three return exactly -1 or +1, in the type of their input, and `sign(0) = sign(-0.0) = +1`. They are one torch
operator, `bitedge::sign`, because the common `x + (sign(x) - x).detach()` is not exactly ±1 in floating point, and so
that `torch.compile` and `torch.export` keep it whole: a compiler that ignores the sign of zero would break the rule.
A NaN has no sign: it becomes +1 or -1 by its sign bit, so whoever trains must watch the loss, which stays NaN upstream.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function

from bitedge.train.errors import TrainError


def sign(x: Tensor) -> Tensor:
    """Return +1 where `x >= 0` and -1 elsewhere, without a gradient of its own."""
    # Adding +0.0 turns -0.0 into +0.0; copysign then runs seven times faster on a CPU than torch.where.
    return torch.copysign(x.new_ones(()), x + 0.0)


@torch.no_grad()
def _sign_kernel(x: Tensor) -> Tensor:
    """The same with one new tensor instead of two."""
    out = x + 0.0
    return torch.copysign(out.new_ones(()), out, out=out)


def _first_above(clip: float, dtype: torch.dtype) -> float:
    """Return the smallest number of this type above `clip`."""
    _, exponent = math.frexp(clip)
    return clip + math.ldexp(torch.finfo(dtype).eps, exponent - 1)


def _ste_slope(grad: Tensor, x: Tensor, clip: float) -> Tensor:
    if math.isinf(clip):
        return grad
    # hardtanh's gradient is this mask in one pass, but exclusive: moving its limits up by one unit in the last place
    # makes |x| = clip pass.
    limit = _first_above(clip, x.dtype)
    return cast(Tensor, torch.ops.aten.hardtanh_backward(grad, x, -limit, limit))


def _approx_slope(grad: Tensor, x: Tensor, _: float) -> Tensor:
    slope = x.abs()
    torch.sub(slope.new_full((), 2.0), slope, alpha=2, out=slope)  # 2 - 2|x|, in one pass
    return slope.clamp_(min=0).mul_(grad)


def _swish_slope(grad: Tensor, x: Tensor, beta: float) -> Tensor:
    # The derivative of SignSwish is beta·(2 - z·tanh(z/2)) / (1 + cosh(z)) with z = beta·x. With s = sigmoid(z),
    # 1/(1 + cosh(z)) = 2·s·(1 - s) and tanh(z/2) = 2·s - 1, which do not overflow.
    z = x * beta
    s = torch.sigmoid(z)
    return grad * (2 * beta * s * torch.sigmoid(-z) * (2 - z * (2 * s - 1)))


_SLOPES: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "ste": _ste_slope,
    "approx": _approx_slope,
    "swish": _swish_slope,
}


class _Sign(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, surrogate: str, parameter: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.surrogate, ctx.parameter = surrogate, parameter
        if not torch.compiler.is_compiling():
            return _sign_kernel(x)  # nobody looks at the operator: spare its dispatch
        with torch._C._AutoDispatchBelowAutograd():
            return cast(Tensor, torch.ops.bitedge.sign.default(x, surrogate, parameter))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return _SLOPES[ctx.surrogate](grads[0], ctx.saved_tensors[0], ctx.parameter), None, None


def _differentiable_sign(x: Tensor, surrogate: str, parameter: float) -> Tensor:
    return cast(Tensor, _Sign.apply(x, surrogate, parameter))  # type: ignore[no-untyped-call]


# One kernel for every device, since it is made of torch's own operators; it serves shape inference too. The gradient is
# registered as a kernel: `torch.library.register_autograd` does the same with 15 µs more per call.
torch.library.define("bitedge::sign", "(Tensor x, str surrogate, float parameter) -> Tensor")
torch.library.impl("bitedge::sign", "CompositeExplicitAutograd", lambda x, *_: _sign_kernel(x))
torch.library.impl("bitedge::sign", "Autograd", _differentiable_sign)


def ste_sign(x: Tensor, clip: float = 1.0) -> Tensor:
    """Binarize; the gradient passes unchanged where `|x| <= clip` (inclusive) and is 0 elsewhere."""
    if not clip > 0:
        raise TrainError(f"clip must be positive (inf for no clipping), got {clip}")
    return cast(Tensor, torch.ops.bitedge.sign.default(x, "ste", clip))


def approx_sign(x: Tensor) -> Tensor:
    """Binarize; the gradient is multiplied by `2 - 2|x|` where `|x| <= 1` and is 0 elsewhere."""
    return cast(Tensor, torch.ops.bitedge.sign.default(x, "approx", 1.0))


def swish_sign(x: Tensor, beta: float = 5.0) -> Tensor:
    """Binarize; the gradient is multiplied by the derivative of SignSwish with steepness `beta`."""
    if not beta > 0:
        raise TrainError(f"beta must be positive, got {beta}")
    return cast(Tensor, torch.ops.bitedge.sign.default(x, "swish", beta))


QUANTIZERS: dict[str, Callable[[Tensor], Tensor]] = {"ste": ste_sign, "approx": approx_sign, "swish": swish_sign}


def quantizer(name: str) -> Callable[[Tensor], Tensor]:
    """Return the quantizer of this name."""
    if name not in QUANTIZERS:
        raise TrainError(f"unknown quantizer {name!r}; expected one of {', '.join(QUANTIZERS)}")
    return QUANTIZERS[name]
