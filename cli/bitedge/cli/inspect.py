"""Show what an artifact holds: metadata, layers, sizes and the kernels that would run it here."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitedge.cli.errors import CommandError
from bitedge.cli.output import emit, note, table, write_atomically

if TYPE_CHECKING:
    from bitedge.runtime import Model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take the file and what to show of it."""
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help="an artifact: .gguf, .onnx or .tflite")
    add("--graph", type=Path, metavar="OUT.svg", help="draw the graph (.gguf only)")
    add("--kernels", action="store_true", help="show the kernel that runs each layer on this machine (.gguf only)")


def run(args: argparse.Namespace) -> int:
    """Print the description, and draw the graph if asked."""
    suffix = args.file.suffix.lower()
    if not args.file.is_file():
        raise CommandError(f"{args.file}: no such file")
    if suffix == ".gguf":
        return _packed(args)
    if args.graph or args.kernels:
        raise CommandError(f"--graph and --kernels take a .gguf file, got {args.file.name}")
    if suffix == ".onnx":
        from bitedge.export.formats.onnx.describe import describe
    elif suffix == ".tflite":
        from bitedge.export.formats.tflite.describe import describe
    else:
        raise CommandError(f"{args.file.name}: expected a file that ends in .gguf, .onnx or .tflite")
    description = describe(args.file)
    emit(args, description, _foreign_text(description))
    return 0


def _packed(args: argparse.Namespace) -> int:
    """A packed file needs the runtime and numpy, nothing else."""
    from bitedge.runtime import Model

    model = Model(args.file)
    if args.graph is not None:
        _draw(model, args.graph)
    emit(args, _packed_data(model), _packed_text(model, kernels=args.kernels))
    return 0


def _draw(model: Model, path: Path) -> None:
    from bitedge.export.ir.render import Box, svg

    if path.suffix.lower() != ".svg":
        raise CommandError(f"--graph writes a picture that ends in .svg, got {path.name}")
    values = {value.name: value for value in model.values}

    def detail(names: tuple[str, ...]) -> str:
        return ", ".join(f"{values[name].kind} {'x'.join(map(str, values[name].shape))}" for name in names)

    first = (model.values[0].name,)
    boxes = [Box("input", detail(first), (), first)]
    boxes += [Box(node.op, detail(node.outputs), node.inputs, node.outputs) for node in model.nodes]
    write_atomically(path, svg(boxes, model.name))
    note(f"drew {path}")


def _packed_data(model: Model) -> dict[str, Any]:
    from bitedge.runtime import available_kernels

    return {
        "format": "gguf",
        "name": model.name,
        "bytes": model.file_bytes,
        "input": {"kind": model.input_kind, "shape": list(model.input_shape)},
        "outputs": model.output_count,
        "labels": list(model.labels),
        "metadata": model.metadata,
        "kernels": model.kernels,
        "kernels_built": [row.name for row in available_kernels() if row.built],
        "macs": sum(node.macs for node in model.nodes),
        "layers": [
            {
                "index": node.index,
                "op": node.op,
                "name": node.name,
                "inputs": list(node.inputs),
                "outputs": list(node.outputs),
                "shape": list(node.shape),
                "kernel": node.kernel,
                "macs": node.macs,
                "bytes": node.bytes,
                **node.attributes,
            }
            for node in model.nodes
        ],
    }


def _packed_text(model: Model, *, kernels: bool) -> str:
    macs = sum(node.macs for node in model.nodes)
    lines = [
        f"{model.name}: {model.file_bytes:,} bytes, {len(model.nodes)} layers, {macs:,} multiply-accumulates per image",
        f"input   {model.input_kind} {'x'.join(map(str, model.input_shape))}",
        f"output  {model.output_count} numbers{_label_text(model.labels)}",
        f"sha256  {model.metadata['bitedge.sha256']}",
        *_preprocessing_text(model.preprocessing),
        *_training_text(model.training),
    ]
    header = ["layer", "operator", "output", "window", "epilogue", "bytes", "MACs", *(["kernel"] if kernels else [])]
    rows = []
    for node in model.nodes:
        cells: list[object] = [
            node.name,
            node.op,
            "x".join(map(str, node.shape)),
            _window_text(node.attributes),
            node.attributes.get("epilogue", "-"),
            node.bytes or "-",
            node.macs or "-",
        ]
        rows.append([*cells, node.kernel] if kernels else cells)
    parts = ["\n".join(lines), table(header, rows)]
    if kernels:
        from bitedge.runtime import available_kernels

        states = [(row.name, _yes(row.built), _yes(row.supported), _yes(row.chosen)) for row in available_kernels()]
        parts.append(table(("kernels", "built", "this CPU", "chosen"), states))
    return "\n\n".join(parts)


def _yes(state: bool) -> str:
    return "yes" if state else "no"


def _label_text(labels: tuple[str, ...]) -> str:
    if not labels:
        return ""
    return f": {', '.join(labels[:10])}{', …' if len(labels) > 10 else ''}"


def _preprocessing_text(preprocessing: dict[str, Any] | None) -> list[str]:
    if preprocessing is None:
        return []
    size = "x".join(map(str, preprocessing["size"]))
    how = "straight" if preprocessing["resize"] is None else f"shorter side to {preprocessing['resize']}, centre crop"
    return [f"images  resized to {size} ({how}, {preprocessing['interpolation']})"]


def _training_text(training: dict[str, Any] | None) -> list[str]:
    if training is None:
        return []
    accuracy = training.get("accuracy")
    parts = [str(training[key]) for key in ("recipe_name", "data") if training.get(key)]
    parts += [f"{100 * accuracy:.2f} % accuracy"] if isinstance(accuracy, float) else []
    return [f"trained {', '.join(parts)}"] if parts else []


def _window_text(attributes: Any) -> str:
    """Write a window as kernel/stride and pads, where they are not the plain ones."""
    if "kernel_size" not in attributes:
        return "-"
    parts = ["x".join(map(str, attributes["kernel_size"]))]
    stride, pads = attributes.get("stride", [1, 1]), attributes.get("pads", [0, 0, 0, 0])
    parts += [f"/{stride[0]}" if stride[0] == stride[1] else f"/{stride[0]}x{stride[1]}"] if max(stride) > 1 else []
    parts += [f"pads {','.join(map(str, pads))}"] if any(pads) else []
    parts += [f"of {attributes['pad_value']:+d}"] if any(pads) and attributes.get("pad_value") else []
    parts += [f"groups {attributes['groups']}"] if attributes.get("groups", 1) > 1 else []
    return " ".join(parts)


def _foreign_text(description: dict[str, Any]) -> str:
    lines = [f"{description['format']}: {description['bytes']:,} bytes, {len(description['layers'])} layers"]
    lines += [
        f"{side:8}{row['name']}  {row['type']} {row['shape']}"
        for side in ("inputs", "outputs")
        for row in description[side]
    ]
    lines += [f"{key} = {str(value)[:100]}" for key, value in description["metadata"].items()]
    rows = [(layer["name"], layer["op"], layer["shape"], layer["bytes"] or "-") for layer in description["layers"]]
    return "\n".join(lines) + "\n\n" + table(("layer", "operator", "output", "bytes"), rows)
