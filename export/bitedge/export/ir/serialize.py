"""A graph as JSON and arrays in a folder, to hand it to a child process. Nothing in it can run code."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitedge.export.ir import ops
from bitedge.export.ir.graph import Graph, Kind, Node, Value

_CLASSES: dict[str, type[Any]] = {
    cls.__name__: cls
    for cls in (Graph, Node, Value, ops.Window, ops.Threshold, ops.Affine, ops.Step, ops.Steps, *ops.LOWERED)
}


def save_graph(graph: Graph, folder: Path) -> None:
    """Write `graph.json` and `arrays.npz`."""
    arrays: dict[str, NDArray[Any]] = {}

    def encode(item: Any) -> Any:
        if isinstance(item, np.ndarray):
            arrays[f"a{len(arrays)}"] = item
            return {"array": f"a{len(arrays) - 1}"}
        if is_dataclass(item):
            return {"class": type(item).__name__} | {
                each.name: encode(getattr(item, each.name)) for each in fields(item)
            }
        return [encode(each) for each in item] if isinstance(item, tuple) else item

    (folder / "graph.json").write_text(json.dumps(encode(graph)), encoding="utf-8")
    np.savez(folder / "arrays.npz", **arrays)


def load_graph(folder: Path) -> Graph:
    """Read what `save_graph` wrote."""
    with np.load(folder / "arrays.npz", allow_pickle=False) as stored:
        arrays = dict(stored)

    def decode(item: Any) -> Any:
        if isinstance(item, list):
            return tuple(decode(each) for each in item)
        if not isinstance(item, dict):
            return item
        if "array" in item:
            return arrays[item["array"]]
        return _CLASSES[item.pop("class")](**{name: decode(each) for name, each in item.items()})

    graph: Graph = decode(json.loads((folder / "graph.json").read_text(encoding="utf-8")))
    entering = Value(graph.input.name, Kind(graph.input.kind), graph.input.shape)
    return Graph(graph.name, entering, graph.nodes, graph.output)
