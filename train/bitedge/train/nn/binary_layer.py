"""What a binary convolution and a binary dense layer share: the ±1 weight and the binarized input."""

from __future__ import annotations

from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bitedge.train.errors import TrainError
from bitedge.train.nn.parameter import BinaryParameter, is_binary
from bitedge.train.nn.quantize import quantizer, sign, ste_sign
from bitedge.train.nn.reactivation import RSign


class BinaryLayer(nn.Module):
    """A layer with ±1 weights and, unless `input_quantizer` is None, a ±1 input. It has no bias.

    By default the weight is a `BinaryParameter`: it holds exactly ±1, receives the plain gradient of the loss with
    respect to that ±1 value (no straight-through mask, no clip), and is flipped by Bop or Bop2ndOrder.
    With `latent=True` it is an ordinary real parameter that is binarized in each forward pass by `ste_sign`, for the
    classic training with Adam.
    """

    weight: nn.Parameter
    real = False
    """Whether this is a layer of a float teacher: see `make_real`."""
    real_weights = False
    """Whether the weight is used as it is, and only the input binarized: see `make_real_weights`."""

    def __init__(self, shape: tuple[int, ...], *, input_quantizer: str | None, latent: bool) -> None:
        super().__init__()
        self._quantize = None if input_quantizer is None else quantizer(input_quantizer)
        self.input_quantizer = input_quantizer
        self.latent = latent
        self.weight = nn.Parameter(torch.empty(shape)) if latent else BinaryParameter(torch.empty(shape))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weight from Glorot's uniform distribution; without latent weights, keep its sign only."""
        nn.init.xavier_uniform_(self.weight)
        if not self.latent:
            with torch.no_grad():
                self.weight.copy_(sign(self.weight))

    def binary_weight(self) -> Tensor:
        """Return the weight as it is used: exactly ±1, detached."""
        return sign(self.weight.detach())

    def effective_weight(self) -> Tensor:
        """Return the ±1 weight that takes part in the forward pass, with its gradient path."""
        plain = not self.latent or self.real or self.real_weights
        return self.weight if plain else ste_sign(self.weight)

    def quantize_input(self, x: Tensor) -> Tensor:
        """Return the input as the product sees it."""
        if self._quantize is None:
            return x
        return F.hardtanh(x) if self.real else self._quantize(x)

    def _keep_mark(self) -> None:
        """Declare the weight binary again where torch replaced it by a plain parameter instead of filling it."""
        if not self.latent and not is_binary(self.weight):
            self.weight = BinaryParameter(self.weight.data, self.weight.requires_grad)

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._keep_mark()
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        weight = state_dict.get(prefix + "weight")
        if not self.latent and isinstance(weight, Tensor) and not bool((weight.abs() == 1).all()):
            errors: list[str] = args[-1]
            errors.append(f"{prefix}weight must be exactly ±1; for real weights build the network with latent=True")
        super()._load_from_state_dict(state_dict, prefix, *args)
        self._keep_mark()


def latent_layers(module: nn.Module) -> list[BinaryLayer]:
    """Return the binary layers of a network, all of which must have latent weights."""
    layers = [layer for layer in module.modules() if isinstance(layer, BinaryLayer)]
    if not all(layer.latent for layer in layers):
        raise TrainError("only latent weights can be used without their sign: build the network with latent=True")
    return layers


def make_real(module: nn.Module) -> nn.Module:
    """Turn a network with latent weights into a float network, in place, and return it: a teacher to distill from.

    Every sign is taken out: weights are used as they are, and inputs pass hardtanh, whose gradient is the one that
    `ste_sign` gives a sign.
    """
    latent_layers(module)
    for layer in module.modules():
        if isinstance(layer, BinaryLayer | RSign):
            layer.real = True
    return module


def make_real_weights(module: nn.Module) -> nn.Module:
    """Take the sign of the weights out of a network with latent weights, in place, and return it.

    Inputs of binary layers stay binary. This is the first of two training stages: Martinez et al.,
    https://arxiv.org/abs/2003.11535.
    """
    for layer in latent_layers(module):
        layer.real_weights = True
    return module
