"""What holds for all networks in the table: exact, compiled whole, trainable by either kind of weight."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from bitedge.train.models import NETWORKS
from bitedge.train.nn import BinaryLayer, ChannelLayerNorm
from bitedge.train.nn.parameter import is_binary

SIZE = 64


def build(name: str, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    return NETWORKS[name](num_classes=5, width=6, image_size=SIZE, **options)


@pytest.mark.parametrize("name", ["binarynet", "xnornet", "birealnet18", "binaryresnet"])
def test_the_norm_of_each_pixel_is_a_choice(name: str) -> None:
    network = build(name, norm="layer").eval()
    assert any(isinstance(layer, ChannelLayerNorm) for layer in network.modules())
    assert network(torch.randn(2, 3, SIZE, SIZE)).isfinite().all()


@pytest.mark.parametrize("name", NETWORKS)
def test_channels_last_gives_the_same_bits(name: str) -> None:
    """Every binary layer, fed the same input, sums the same integers in both layouts."""
    network = build(name).eval()
    inputs: dict[nn.Module, tuple[torch.Tensor, torch.Tensor]] = {}
    layers = [layer for name, layer in network.named_modules() if isinstance(layer, BinaryLayer) and name != "conv1"]
    for layer in layers:
        layer.register_forward_hook(lambda own, args, out: inputs.setdefault(own, (args[0], out)) and None)
    with torch.no_grad():
        network(torch.randn(2, 3, SIZE, SIZE))
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        assert layers
        for again, (x, expected) in list(inputs.items()):
            moved = x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x
            assert torch.equal(again(moved), expected)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_trained_parameter_gets_a_gradient(name: str) -> None:
    network = build(name)
    F.cross_entropy(network(torch.randn(4, 3, SIZE, SIZE)), torch.arange(4)).backward()  # type: ignore[no-untyped-call]
    for parameter_name, parameter in network.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, parameter_name
        if is_binary(parameter):
            assert parameter.grad is not None
            assert float(parameter.grad.abs().sum()) > 0, parameter_name


@pytest.mark.parametrize("name", NETWORKS)
def test_latent_variant_computes_the_same_function(name: str) -> None:
    latent = build(name, latent=True).eval()
    assert not any(is_binary(p) for p in latent.parameters())
    binary = build(name).eval()
    state = latent.state_dict()
    for module_name, module in latent.named_modules():
        if isinstance(module, BinaryLayer):
            state[f"{module_name}.weight"] = module.binary_weight()
    binary.load_state_dict(state)
    x = torch.randn(2, 3, SIZE, SIZE)
    assert torch.equal(latent(x), binary(x))


@pytest.mark.parametrize("name", NETWORKS)
def test_same_seed_same_weights(name: str) -> None:
    first, second = build(name).state_dict(), build(name).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's tracer does so itself
@pytest.mark.parametrize("name", ["binarynet", "birealnet18", "reactnet18", "binarydensenet28"])
def test_compiles_without_a_graph_break(name: str) -> None:
    torch._dynamo.reset()  # it counts the networks that it has compiled
    network = build(name).eval()
    compiled = torch.compile(network, backend="aot_eager", fullgraph=True)
    x = torch.randn(2, 3, SIZE, SIZE)
    expected = network(x)
    assert torch.equal(compiled(x), expected)
