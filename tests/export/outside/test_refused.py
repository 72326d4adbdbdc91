"""What the graph has no operator for is refused in one sentence: which layer, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch.nn.functional as F
from tests.export.outside.binarizers import Lambda
from torch import Tensor, nn

from bitedge.export import ExportError, capture


class Named(nn.Module):
    """A layer called `up`."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.up = layer

    def forward(self, x: Tensor) -> Tensor:
        result = self.up(x)
        return result[0] if isinstance(result, tuple) else result  # type: ignore[no-any-return]


class Attention(nn.Module):
    """Self-attention over pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(2).transpose(1, 2)
        return self.attention(tokens, tokens, tokens)[0].mean(1)  # type: ignore[no-any-return]


class Two(nn.Module):
    """Two images."""

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return (left - right).mean((2, 3))


def dynamic(x: Tensor) -> Tensor:
    return F.conv2d(x, x[:, :, :1, :1].mean((2, 3))[:, :, None, None])


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "nearest": (lambda: Named(nn.Upsample(scale_factor=2)), "layer 'up': upsampling is not supported"),
    "bilinear": (lambda: Lambda(lambda x: F.interpolate(x, size=9, mode="bilinear")), "upsampling is not supported"),
    "pixel shuffle": (
        lambda: nn.Sequential(nn.PixelShuffle(2), nn.Conv2d(1, 2, 1)),
        "layer '1': reads elements that were moved between pixels and channels",
    ),
    "transposed": (lambda: Named(nn.ConvTranspose2d(4, 2, 2)), "layer 'up': transposed convolution is not supported"),
    "recurrent": (
        lambda: nn.Sequential(Lambda(lambda x: x.flatten(2).transpose(1, 2)), Named(nn.LSTM(4, 3, batch_first=True))),
        "layer '1.up': recurrent layers are not supported",
    ),
    "attention": (Attention, "layer 'attention'"),
    "two images": (Two, r"Two.forward needs 2 inputs \(left, right\), expected one"),
    "logarithm": (lambda: Lambda(lambda x: F.log_softmax(x.mean((2, 3)), 1)), "log_softmax is not supported; return"),
    "a class": (lambda: Lambda(lambda x: x.mean((2, 3)).argmax(1)), "choosing a class is up to the caller"),
    "dropout": (lambda: Lambda(lambda x: F.dropout(x, 0.5)), "drops out in evaluation; pass training=self.training"),
    "weights from the image": (lambda: Lambda(dynamic), "its weights depend on the image"),
    "one dimension": (lambda: nn.Sequential(nn.Flatten(2), nn.Conv1d(4, 2, 1)), "layer '1': only two-dimensional"),
    "half precision": (lambda: Lambda(lambda x: x.half().mean((2, 3))), "computes in torch.float16, expected float32"),
    "reflection": (lambda: nn.Sequential(nn.ReflectionPad2d(1)), "padding_mode='reflect' is not supported"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_layer_is_named(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(ExportError, match=message):
        capture(make(), (4, 6, 6))


def test_a_condition_on_numbers_names_its_module() -> None:
    class Condition(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return x if x.sum() > 0 else -x

    with pytest.raises(ExportError, match=r"torch.export cannot trace layer 'up' of Named: its control flow depends"):
        capture(Named(Condition()), (4, 6, 6))
