"""What half-precision weights cost: bytes saved, accuracy lost, measured with the core on real images."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitedge.export.formats.bundle import Bundle
from bitedge.export.formats.gguf import writer as gguf_writer
from bitedge.export.ir.graph import Graph

Evaluation = tuple[NDArray[Any], NDArray[np.int64]]
_BATCH = 64


def half_effect(bundle: Bundle, full: Graph, evaluation: Evaluation | None) -> Mapping[str, Any]:
    """Compare a bundle whose float weights were halved with the graph before; without images, only its bytes."""
    with tempfile.TemporaryDirectory() as folder:
        halved_path, full_path = Path(folder) / "half.gguf", Path(folder) / "full.gguf"
        gguf_writer.write(bundle, halved_path)
        gguf_writer.write(replace(bundle, lowered=full), full_path)
        saved = full_path.stat().st_size - halved_path.stat().st_size
        effect: dict[str, Any] = {"bytes_saved": saved, "images": 0}
        text = f"float weights as float16: {saved:,} bytes smaller"
        if evaluation is None:
            return effect | {"summary": f"{text}; accuracy not measured: no images (give --data)"}
        images, labels = evaluation
        before, after = _answers(full_path, images), _answers(halved_path, images)
    effect |= {
        "images": len(images),
        "accuracy_fp32": float((before == labels).mean()),
        "accuracy_fp16": float((after == labels).mean()),
        "top1_agreement": float((before == after).mean()),
    }
    difference = 100 * (effect["accuracy_fp16"] - effect["accuracy_fp32"])
    summary = (
        f"{text}; accuracy {100 * effect['accuracy_fp32']:.2f} % in float32, {100 * effect['accuracy_fp16']:.2f} % in "
        f"float16 ({difference:+.2f} points) on {len(images):,} images"
    )
    return effect | {"summary": summary}


def _answers(path: Path, images: NDArray[Any]) -> NDArray[np.int64]:
    from bitedge.runtime import Model

    model = Model(path)
    parts = [model.run(images[start : start + _BATCH]).argmax(axis=1) for start in range(0, len(images), _BATCH)]
    return np.concatenate(parts)
