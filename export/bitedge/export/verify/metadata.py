"""What an artifact says beside the network: name, labels, preprocessing, training. All artifacts must say the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Metadata:
    """What an artifact says beside the network."""

    name: str
    labels: tuple[str, ...] = ()
    preprocessing: Mapping[str, Any] | None = None
    training: Mapping[str, Any] | None = None


def metadata_breach(found: Metadata | None, expected: Metadata) -> str | None:
    """Compare; None if all is the same, or the format holds none of it."""
    if found is None:
        return None
    for key in ("name", "labels", "preprocessing", "training"):
        have, want = (_plain(getattr(each, key)) for each in (found, expected))
        if have != want:
            return f"its {key} is {_short(have)}, expected {_short(want)}"
    return None


def _plain(value: Any) -> Any:
    """As JSON gives it back: tuples are lists, keys are text."""
    return json.loads(json.dumps(value))


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
