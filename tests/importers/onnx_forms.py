"""Binary networks as ONNX files, in the ways in which people have them, written by the real tool or by hand."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

Writer = Callable[[Path], None]
RNG_SEED = 7


class Block(nn.Module):
    """A binary convolution as papers write it: latent weights, a scale per channel, BatchNorm."""

    def __init__(self, inputs: int, outputs: int, stride: int, sign: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs, 3, 3))
        self.norm = nn.BatchNorm2d(outputs)
        self.stride, self.sign = stride, sign

    def forward(self, x: Tensor) -> Tensor:
        weight = torch.sign(self.weight) * self.weight.abs().mean((1, 2, 3), keepdim=True)
        result: Tensor = self.norm(torch.conv2d(self.sign(x), weight, None, self.stride, 1))
        return result


class Net(nn.Module):
    """A stem, two binary blocks with shortcuts, a dense layer."""

    def __init__(self, sign: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 2, 1)
        self.norm = nn.BatchNorm2d(16)
        self.one, self.two = Block(16, 16, 1, sign), Block(16, 24, 2, sign)
        self.shortcut, self.active, self.dense = nn.Conv2d(16, 24, 1), nn.PReLU(24), nn.Linear(24, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.stem(x))
        x = x + self.one(x)
        x = self.active(self.shortcut(nn.functional.avg_pool2d(x, 2)) + self.two(x))
        answer: Tensor = self.dense(x.mean((2, 3)))
        return answer


def where(x: Tensor) -> Tensor:
    return torch.where(x >= 0, 1.0, -1.0)


def doubled(x: Tensor) -> Tensor:
    return 2 * (x > 0).float() - 1


def network(sign: Callable[[Tensor], Tensor]) -> Net:
    """Give a network whose BatchNorms have statistics and both signs of scale."""
    torch.manual_seed(RNG_SEED)
    net = Net(sign)
    for layer in net.modules():
        if isinstance(layer, nn.BatchNorm2d):
            for tensor in (layer.running_mean, layer.weight.data, layer.bias.data):
                assert tensor is not None
                tensor.normal_()
            assert layer.running_var is not None
            layer.running_var.uniform_(0.5, 2)
    return net.eval()


def by_torch(sign: Callable[[Tensor], Tensor], opset: int = 17) -> Writer:
    """Write by torch's older exporter."""

    def write(path: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(network(sign), (torch.zeros(1, 3, 32, 32),), str(path), dynamo=False, opset_version=opset)

    return write


def by_dynamo(path: Path) -> None:
    """Write by torch's newer exporter, with a batch of any size."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            network(where),
            (torch.zeros(2, 3, 32, 32),),
            dynamo=True,
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            verbose=False,
        )
        assert program is not None
        program.save(str(path))


def by_bitedge(path: Path) -> None:
    """Write by bitedge itself."""
    from bitedge.export import export

    export(network(where), (3, 32, 32), path.parent / "own", formats=["onnx"])
    (path.parent / "own" / "model.onnx").rename(path)


def _signs(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> NDArray[np.float32]:
    return (rng.integers(0, 2, shape) * 2 - 1).astype(np.float32) * np.float32(scale)


def save(
    path: Path, nodes: list[onnx.NodeProto], constants: dict[str, NDArray[np.generic]], entry: list[int | str]
) -> None:
    """Save a graph from `x` to `y`."""
    graph = helper.make_graph(
        nodes,
        "by_hand",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, entry)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", "outputs"])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    if any(node.domain for node in nodes):
        opsets.append(helper.make_opsetid("qonnx.custom_op.general", 1))
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), str(path))


def dense(path: Path) -> None:
    """Binary dense layers on vectors, as MatMul and as Gemm."""
    rng = np.random.default_rng(RNG_SEED)
    nodes = [
        helper.make_node("GreaterOrEqual", ["x", "zero"], ["c0"]),
        helper.make_node("Where", ["c0", "plus", "minus"], ["s0"]),
        helper.make_node("MatMul", ["s0", "w0"], ["h0"]),
        helper.make_node("Add", ["h0", "b0"], ["h1"]),
        helper.make_node("GreaterOrEqual", ["h1", "zero"], ["c1"]),
        helper.make_node("Where", ["c1", "plus", "minus"], ["s1"]),
        helper.make_node("Gemm", ["s1", "w1", "b1"], ["y"], transB=1),
    ]
    numbers: dict[str, NDArray[np.generic]] = {
        "zero": np.array(0, np.float32),
        "plus": np.array(1, np.float32),
        "minus": np.array(-1, np.float32),
        "w0": _signs(rng, 100, 64),
        "b0": rng.normal(size=64).astype(np.float32),
        "w1": _signs(rng, 10, 64, scale=0.25),
        "b1": rng.normal(size=10).astype(np.float32),
    }
    save(path, nodes, numbers, ["N", 100])


def same_padding(path: Path) -> None:
    """SAME at stride 2, a pad of -1 before the sign, and a reshape by Shape, Gather and Concat."""
    rng = np.random.default_rng(RNG_SEED)
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w0"], ["a"], auto_pad="SAME_UPPER", strides=[2, 2]),
        node("Pad", ["a", "pads", "minus"], ["p"]),
        node("GreaterOrEqual", ["p", "zero"], ["c"]),
        node("Where", ["c", "plus", "minus"], ["s"]),
        node("Conv", ["s", "w1"], ["b"], auto_pad="VALID"),
        node("MaxPool", ["b"], ["m"], kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_LOWER"),
        node("GlobalAveragePool", ["m"], ["g"]),
        node("Shape", ["g"], ["shape"]),
        node("Gather", ["shape", "first"], ["batch"]),
        node("Unsqueeze", ["batch", "axis"], ["batches"]),
        node("Concat", ["batches", "rest"], ["wanted"], axis=0),
        node("Reshape", ["g", "wanted"], ["y"]),
    ]
    numbers: dict[str, NDArray[np.generic]] = {
        "zero": np.array(0, np.float32),
        "plus": np.array(1, np.float32),
        "minus": np.array(-1, np.float32),
        "w0": rng.normal(size=(8, 3, 3, 3)).astype(np.float32),
        "w1": _signs(rng, 10, 8, 3, 3),
        "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64),
        "first": np.array(0, np.int64),
        "axis": np.array([0], np.int64),
        "rest": np.array([-1], np.int64),
    }
    save(path, nodes, numbers, ["N", 3, 15, 17])


def qonnx(path: Path) -> None:
    """QONNX: bipolar quantizers of weights and activations, and a Quant of one bit."""
    rng = np.random.default_rng(RNG_SEED)
    node = helper.make_node
    domain = "qonnx.custom_op.general"
    nodes = [
        node("Conv", ["x", "w0"], ["a"]),
        node("BipolarQuant", ["a", "scale"], ["s"], domain=domain),
        node("BipolarQuant", ["w1", "wscale"], ["q1"], domain=domain),
        node("Conv", ["s", "q1"], ["b"]),
        node("BatchNormalization", ["b", "g", "beta", "mean", "var"], ["n"]),
        node("Quant", ["n", "scale", "zero", "one"], ["t"], domain=domain, signed=1, narrow=1, rounding_mode="ROUND"),
        node("Flatten", ["t"], ["f"]),
        node("BipolarQuant", ["w2", "wscale"], ["q2"], domain=domain),
        node("MatMul", ["f", "q2"], ["y"]),
    ]
    numbers: dict[str, NDArray[np.generic]] = {
        "w0": rng.normal(size=(8, 3, 3, 3)).astype(np.float32),
        "w1": rng.normal(size=(16, 8, 3, 3)).astype(np.float32),
        "w2": rng.normal(size=(16 * 8 * 8, 10)).astype(np.float32),
        "scale": np.array(1, np.float32),
        "wscale": np.array(0.5, np.float32),
        "zero": np.array(0, np.float32),
        "one": np.array(1, np.float32),
        "g": rng.normal(size=16).astype(np.float32),
        "beta": rng.normal(size=16).astype(np.float32),
        "mean": rng.normal(size=16).astype(np.float32),
        "var": rng.uniform(0.5, 2, 16).astype(np.float32),
    }
    save(path, nodes, numbers, [1, 3, 12, 12])


def channels_last(path: Path) -> None:
    """Channels last with Transposes around each convolution, as tf2onnx leaves them when it cannot move them."""
    rng = np.random.default_rng(RNG_SEED)
    node = helper.make_node
    nodes = [
        node("Transpose", ["x"], ["x1"], perm=[0, 3, 1, 2]),
        node("Conv", ["x1", "w0"], ["a"], pads=[1, 1, 1, 1]),
        node("Sign", ["a"], ["s"]),
        node("Conv", ["s", "w1"], ["b"], group=2),
        node("Transpose", ["b"], ["b1"], perm=[0, 2, 3, 1]),
        node("Reshape", ["b1", "shape"], ["f"]),
        node("MatMul", ["f", "w2"], ["y"]),
    ]
    numbers: dict[str, NDArray[np.generic]] = {
        "w0": rng.normal(size=(8, 3, 3, 3)).astype(np.float32),
        "w1": _signs(rng, 12, 4, 3, 3),
        "w2": rng.normal(size=(12 * 6 * 6, 10)).astype(np.float32),
        "shape": np.array([1, -1], np.int64),
    }
    save(path, nodes, numbers, [1, 8, 8, 3])


FORMS: dict[str, tuple[Writer, int]] = {
    "torch, where": (by_torch(where), 2),
    "torch, sign": (by_torch(torch.sign), 2),
    "torch, strict comparison": (by_torch(doubled), 2),
    "torch, opset 11": (by_torch(where, 11), 2),
    "torch, dynamo": (by_dynamo, 2),
    "bitedge": (by_bitedge, 2),
    "dense": (dense, 2),
    "same padding": (same_padding, 1),
    "qonnx": (qonnx, 2),
    "channels last": (channels_last, 1),
}
"""How each form is written, and how many binary layers it has."""
