"""Pictures of the test split with the answers of the packed model."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

COUNT = 12


@dataclass(frozen=True)
class Example:
    """An image as PNG, what it shows, and what the model says, with its probability."""

    png: bytes
    truth: str
    answer: str
    score: float


def classify_examples(run_folder: Path, model_path: Path, data: Path | None) -> list[Example]:
    """Classify images spread over the test split with the packed model."""
    import numpy as np

    from bitedge.runtime import Model
    from bitedge.train.engine.run import load_run

    images, truths = load_run(run_folder).evaluation(data, limit=COUNT)
    model = Model(model_path)
    logits = model.run(images)
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    scores = raised / raised.sum(axis=1, keepdims=True)
    labels = model.labels or tuple(map(str, range(model.output_count)))
    return [
        Example(_png(image), labels[truth], labels[int(row.argmax())], float(row.max()))
        for image, truth, row in zip(images, truths, scores, strict=True)
    ]


def _png(image: np.ndarray[Any, Any]) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return buffer.getvalue()


def gallery(examples: Sequence[Example]) -> str:
    """The pictures as a list; a wrong answer says what was right."""
    items = []
    for example in examples:
        source = "data:image/png;base64," + base64.b64encode(example.png).decode()
        right = example.truth == example.answer
        text = f"{escape(example.answer)} {100 * example.score:.0f} %"
        text = text if right else f'<span class="wrong">{text}</span><br>is {escape(example.truth)}'
        items.append(f'<li><img src="{source}" alt="{escape(example.truth)}">{text}</li>')
    return f'<ul class="examples">{"".join(items)}</ul>'
