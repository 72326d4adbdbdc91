"""Check a model against the golden vectors of docs/format.md, for files that the core does not check itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitedge.runtime.golden import golden_images
from bitedge.serve.api.errors import ModelFaultError

TOLERANCE = 1e-3


def check_golden(
    text: str, run: Callable[[NDArray[Any]], NDArray[np.float32]], shape: tuple[int, int, int], outputs: int
) -> None:
    """Refuse a model that does not give the answers which its metadata `bitedge.golden` expects."""
    try:
        golden = json.loads(text)
        seed, expected = int(golden["seed"]), np.asarray(golden["output"], np.float32)
    except (ValueError, KeyError, TypeError):
        raise ModelFaultError('the golden vectors cannot be read: expected {"seed": n, "output": [[...]]}') from None
    if expected.ndim != 2 or len(expected) == 0 or expected.shape[1] != outputs:
        raise ModelFaultError(f"the golden vectors have shape {list(expected.shape)}; expected [count, {outputs}]")
    answers = run(golden_images("uint8", shape, seed, len(expected)))
    error = np.abs(answers - expected).max(axis=1) / np.maximum(1, np.abs(expected).max(axis=1))
    if not (error <= TOLERANCE).all():
        worst = int(np.argmax(np.where(np.isnan(error), np.inf, error)))
        raise ModelFaultError(
            f"golden vector {worst}: the answer is {error[worst]:.3g} off, at most {TOLERANCE:g} is allowed; "
            "the file is damaged, or does not run right on this machine"
        )
