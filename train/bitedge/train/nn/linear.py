"""Binary dense layer."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from bitedge.train.errors import TrainError
from bitedge.train.nn.binary_layer import BinaryLayer


class BinaryLinear(BinaryLayer):
    """A dense layer of ±1 inputs with ±1 weights `[out_features, in_features]`, without bias."""

    def __init__(
        self, in_features: int, out_features: int, *, input_quantizer: str | None = "ste", latent: bool = False
    ) -> None:
        if in_features < 1 or out_features < 1:
            raise TrainError(f"in_features and out_features must be positive, got {in_features} and {out_features}")
        super().__init__((out_features, in_features), input_quantizer=input_quantizer, latent=latent)
        self.in_features = in_features
        self.out_features = out_features

    def forward(self, x: Tensor) -> Tensor:
        """Multiply `[..., in_features]`."""
        return F.linear(self.quantize_input(x), self.effective_weight())

    def extra_repr(self) -> str:
        """Describe the layer as torch's own layers do."""
        return (
            f"{self.in_features}, {self.out_features}, input_quantizer={self.input_quantizer!r}, latent={self.latent}"
        )
